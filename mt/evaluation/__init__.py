"""Evaluation: scores of translations, their significance, and an analysis of words and lengths."""
