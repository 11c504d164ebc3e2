"""Where sentence pairs come from: the Hub, local files, and the built-in corpora, all as `Source`."""
