"""The two corpora that come with the program, as generators of text."""
