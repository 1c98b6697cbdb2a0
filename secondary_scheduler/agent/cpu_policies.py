# SPDX-License-Identifier: Apache-2.0

"""Threads of an instance with dedicated CPUs, by its flavor and its image.

The rules are Nova's own (``nova.virt.hardware.numa_get_constraints``):

* ``hw:cpu_policy=dedicated``, or ``resources:PCPU``: all vCPUs;
* ``mixed``: the vCPUs of ``hw:cpu_dedicated_mask``, or of the realtime mask;
* ``shared``, or no policy: none.  Nova pins such an instance only if it has
  huge pages, persistent memory or NUMA nodes.  Then its vCPUs float over NUMA
  nodes.  Any other pin was made by hand, and says more than the flavor;
* ``hw:emulator_threads_policy=isolate``, beside dedicated vCPUs: the emulator
  and I/O threads, too.
"""

from collections.abc import Mapping
import re
import typing

from oslo_utils import strutils

from secondary_scheduler.agent import kernel_files

_PCPU = re.compile(r'resources([1-9][0-9]*)?:PCPU')
#: Extra specs and properties that make a NUMA topology, beside the policy.
_NUMA = frozenset({'hw:numa_nodes', 'hw:mem_page_size', 'hw:pmem',
                   'hw_numa_nodes', 'hw_mem_page_size'})
#: Mask of all vCPUs: all but none.
_EVERY = '^'


class DedicatedThreads(typing.NamedTuple):
    """Threads of an instance that have CPUs for themselves.

    :param vcpus: numbers of vCPUs
    :param others: whether the emulator and I/O threads do
    """

    vcpus: frozenset[int]
    others: bool


def find_dedicated(specs: Mapping[str, str], properties: Mapping[str, str],
                   vcpus: int) -> DedicatedThreads | None:
    """Return the threads for which Nova has dedicated CPUs.

    :param specs: extra specs of the flavor
    :param properties: properties of the image
    :param vcpus: number of vCPUs
    :returns: None if they do not explain the pins of the instance: its policy
        cannot be understood, or Nova pins nothing of it
    """
    if any(_PCPU.match(name) and value.strip('0')
           for name, value in specs.items()):
        policy = 'dedicated'
    else:
        # Nova refuses an image that contradicts the policy of the flavor.
        policy = (specs.get('hw:cpu_policy')
                  or properties.get('hw_cpu_policy') or 'shared')
    found: frozenset[int] | None = None
    if policy == 'shared' and not _NUMA.isdisjoint((*specs, *properties)):
        found = frozenset()
    elif policy == 'dedicated':
        found = frozenset(range(vcpus))
    elif policy == 'mixed':
        found = _parse_mask(_find_mask(specs, properties), vcpus)
    if found is None:
        return None
    return DedicatedThreads(found, bool(found) and specs.get(
        'hw:emulator_threads_policy') == 'isolate')


def _find_mask(specs: Mapping[str, str], properties: Mapping[str, str]
               ) -> str:
    """Return the mask of the dedicated vCPUs of a mixed instance.

    :returns: '' if there is none.
    """
    if mask := specs.get('hw:cpu_dedicated_mask'):
        return mask
    if not strutils.bool_from_string(specs.get('hw:cpu_realtime')):
        return ''
    return (properties.get('hw_cpu_realtime_mask')
            or specs.get('hw:cpu_realtime_mask')
            or _EVERY)      # which Nova accepts beside isolated threads


def _parse_mask(text: str, vcpus: int) -> frozenset[int] | None:
    """Parse a mask such as ``2-3`` or ``^0-1``, that is all but these.

    :returns: None if it is none.
    """
    rules = [rule.strip() for rule in text.split(',')]
    try:
        named = [kernel_files.parse_cpus(','.join(
            rule.removeprefix('^') for rule in rules
            if rule.startswith('^') == excluded), 'mask')
            for excluded in (False, True)]
    except ValueError:
        return None
    every = frozenset(range(vcpus))
    if text.strip().startswith('^'):
        named[0] = every
    return (named[0] & every) - named[1] or None
