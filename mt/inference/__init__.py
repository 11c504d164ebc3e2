"""Text in, text out: a run loaded, its translations and scores."""
