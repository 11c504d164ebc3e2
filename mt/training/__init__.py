"""The parts of a training run: loss, schedule, step, validation, loop."""
