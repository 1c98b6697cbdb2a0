"""Version 1 of the commands."""
