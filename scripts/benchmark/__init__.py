"""Speed and memory of `mt` beside its peers, measured in one run: `scripts/bench`."""
