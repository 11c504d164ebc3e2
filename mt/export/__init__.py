"""Exporting a trained model to other programs, and proving that it translates there as it does here."""
