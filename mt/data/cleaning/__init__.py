"""Training pairs made cleaner: filters, duplicates, leaks of the evaluation data, and a report of it all."""
