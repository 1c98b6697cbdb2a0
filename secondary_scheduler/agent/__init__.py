"""Agent on each compute host: sensors, control, inventory and reports."""
