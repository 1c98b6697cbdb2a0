"""The database of leases, which service and scheduler share."""
