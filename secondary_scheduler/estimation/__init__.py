"""What a host can still take, and how long an operation lasts."""
