"""Simulation of the lease scheduler."""
