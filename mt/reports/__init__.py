"""A run, or all of them, told to somebody: a table, a story in the terminal, a page, a model card.

Everything that a run holds is read within bounds and escaped, and a damaged run is described as far as it can
be read. Only `samples`, which translates, needs torch.
"""
