"""A translation service over HTTP: dynamic batching, requests and their limits, a page to try it."""
