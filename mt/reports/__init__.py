"""Reports on one run or all runs: a table, a summary in the terminal, a web page, a model card.

All files of a run are read within bounds and escaped, and a damaged run is described as far as it can be
read. What shows samples, which translate, needs torch.
"""
