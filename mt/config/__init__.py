"""All options with their defaults and checks, and the code that reads, explains and writes configs."""
