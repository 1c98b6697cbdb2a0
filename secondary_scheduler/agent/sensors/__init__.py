"""Sensors of the agent, one module for each kind of resource."""
