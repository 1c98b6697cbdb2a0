"""Leases: scheduler, engine, service and client."""
