"""The only rooms where everything meets, one file a command."""
