"""``builtin:primer``: English sentences and their German translations, from a lexicon and a grammar.

The lexicon is data (the YAML files); the grammar is code, to be read in this order: ``lexicon`` (the
forms and properties of each word), ``noun_phrase`` (articles, endings, cases), ``clause`` (German word
order), ``sentence`` (English word order; clauses joined, capitals, commas), ``drawing`` (words that make
sense together), ``patterns`` (kinds of sentences), ``generate`` (splits, and no pair twice).
"""
