"""The per-compute service: sensors, control, floor, inventory, reports."""
