"""One file for each program that is measured; each imports only what its own environment has."""
