"""The policy language, and triggers that count failed checks."""
