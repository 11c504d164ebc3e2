"""``builtin:primer``: English sentences and their German translations, from a lexicon and a grammar.

The lexicon is data (the YAML files); the grammar is code, to be read in this order: ``lexicon`` (what a word
knows of itself), ``noun_phrase`` (articles, endings, cases), ``clause`` (German word order), ``english``
(English word order), ``sentence`` (capitals, commas, clauses joined), ``drawing`` (words that make sense
together), ``patterns`` (kinds of sentences), ``generate`` (splits, and no pair twice).
"""
