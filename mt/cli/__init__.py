"""What speaks with the user: parse, print, exit code; one file a command."""
