"""Search: finding translations that are likely according to a trained model."""
