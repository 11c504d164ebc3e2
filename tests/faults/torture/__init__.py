"""Runs that are killed, cut off, misled and short of room, and what is left of them; `scripts/torture`."""
