"""The report channel between agents, scheduler and Watcher (DESIGN.md 9)."""
