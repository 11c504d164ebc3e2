"""Translates HTML and Markdown: text is translated, and tags come out where they belong."""
