"""Secondary (preemptible) instances on idle capacity of OpenStack hosts."""
