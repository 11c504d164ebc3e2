"""How good translations are: scores, tests of significance, and where a system errs."""
