"""From a corpus to batches: sources, tokenizers, ids, and batches of like length."""
