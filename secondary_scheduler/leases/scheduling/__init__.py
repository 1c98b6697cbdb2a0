"""Leases: what users ask for, and when and where they get it (Haizea)."""
