"""Lease engine: turns the schedule of leases into operations on servers."""
