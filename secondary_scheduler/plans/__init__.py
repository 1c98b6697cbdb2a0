"""Plans: operations in a dependency graph, and an independent checker."""
