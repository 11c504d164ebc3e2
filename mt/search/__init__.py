"""How a trained model speaks: finding the output that it finds likely."""
