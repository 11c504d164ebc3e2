"""The encoder-decoder Transformer of "Attention Is All You Need" (Vaswani et al. 2017), on tensors.

Letters in the shapes, the same in every file: B batch, S source length, T target length, D ``d_model``,
H heads, K = D / H, V vocabulary. Tq and Tk are the lengths of queries and of keys.
"""
