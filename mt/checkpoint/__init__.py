"""Checkpoints that appear whole or not at all, and are verified when they are loaded."""
