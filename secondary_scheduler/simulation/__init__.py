"""A simulator that drives the decision core as an agent and Watcher would.

Discrete events on one-second ticks, vectorised over hosts and instances.  Many
independent clusters of equal shape run side by side in one set of arrays;
decisions see one cluster at a time and are those of ``decisions``.
"""
