"""What one run of training consists of: loss, schedule, step, validation, loop."""
