"""Secondary (preemptible) instances on the idle capacity of OpenStack hosts."""
