"""Inference: a trained model translates and scores text."""
