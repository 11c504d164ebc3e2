"""Cleaning of training pairs: filters, duplicates, leaks of the evaluation data, and a report on all this."""
