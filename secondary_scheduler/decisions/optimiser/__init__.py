# SPDX-License-Identifier: Apache-2.0

"""Optimiser: the cheapest equivalent reconfiguration.

The members of a sample configuration run wherever that makes the switch to it
cheapest (Hermenier 2009, section 4.3).  A lower bound and good configurations
come from a decomposition by hosts; a solver takes over only where bound and
switch differ.
"""

from secondary_scheduler.decisions.optimiser.optimise import (
    Optimised,
    optimise,
)

__all__ = ('Optimised', 'optimise')
