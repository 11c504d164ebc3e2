"""Attention maps: what a model attends to, as a page, a picture or word alignments."""
