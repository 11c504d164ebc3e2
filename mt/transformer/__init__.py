"""The encoder-decoder Transformer of "Attention Is All You Need" (Vaswani et al. 2017), on tensors.

Letters of the shapes in every file: B batch, S source length, T target length, D ``d_model``, H heads,
K = D / H, V vocabulary. Tq and Tk are the numbers of queries and of keys. In cached decoding R is the number
of rows: one for each sentence in greedy search, one for each partial hypothesis in beam search.
"""
