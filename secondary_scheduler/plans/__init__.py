"""Plans: operations in a dependency graph, and the checker that replays them."""
