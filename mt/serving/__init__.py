"""A translation service over HTTP: batches across requests, limits, and a page to try it."""
