"""The policy language, and the triggers that count failed checks."""
