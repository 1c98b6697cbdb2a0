# SPDX-License-Identifier: Apache-2.0

"""Simulator of clusters under the decisions of agents and Watcher.

Time advances in ticks of a second, vectorised over hosts and instances.  Many
independent clusters of equal shape run side by side in one set of arrays.
Decisions are those of ``decisions``, and see one cluster at a time.
"""
