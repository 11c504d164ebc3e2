"""Search: finding translations that a trained model finds likely."""
