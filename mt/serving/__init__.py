"""A service that translates over HTTP: dynamic batching, requests and their limits, a page to try it."""
