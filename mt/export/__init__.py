"""Exports a trained model to other libraries, and verifies that it translates the same there."""
