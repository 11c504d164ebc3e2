"""Checks before a run or after a step went wrong, and the choice of a config: `mt check` and `mt init`."""
