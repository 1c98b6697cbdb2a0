"""Plans: dependency graphs of operations, and an independent checker."""
