"""Reports on one run or all runs: a table, a summary in the terminal, a web page, a model card."""
