"""Every option, its default and its check: one file a section, and load.py."""
