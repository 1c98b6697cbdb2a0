"""Database of leases, shared by service and scheduler."""
