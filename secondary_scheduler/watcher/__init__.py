"""Watcher's side: what changes the cloud (DESIGN.md decision 8).

Reports of the agents reach the *collector*; violations, merged in a *window*,
become audits, created by the one leader; the *strategy* asks a decision
driver for a plan on the collector's snapshot; the *planner* turns it into a
graph of *actions*, which call Nova.
"""
