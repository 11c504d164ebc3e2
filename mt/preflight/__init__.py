"""What is found out before a run begins, or after a step went wrong: `mt check` and `mt init`."""
