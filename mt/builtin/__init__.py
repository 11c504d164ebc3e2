"""The two corpora that come with the program."""
