"""`mt` trains a Transformer that translates, from one YAML file and a parallel corpus."""

__version__ = "0.1.0"
