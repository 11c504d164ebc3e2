"""The command line: parsing, printing and exit codes, with one file per command."""
