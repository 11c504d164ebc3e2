"""Attention maps: what a model attends to, as a page, a picture, word alignments or raw weights."""
