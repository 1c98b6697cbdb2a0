# SPDX-License-Identifier: Apache-2.0

"""Values of device limits in libvirt's terms, and the record of original ones.

Nothing here talks to libvirt; ``throttles`` does.
"""

from collections.abc import Mapping
import dataclasses
import json
from xml.etree import ElementTree  # nosec B405: see parse_record

#: Seconds' worth of a limit that may pass at once.  QEMU allows that much for
#: disks, and the same is set for traffic from an interface.  It adds a tenth
#: to the first second, so limits are set lower by that factor.
_BURST = 0.1
#: The smallest burst of an interface: guests may send packets of 64 KiB.
_LEAST_BURST_KB = 128
#: Smallest change of a limit that is set, as part of the present limit.
_HYSTERESIS = 0.05
#: The same for raising it, by kind of device.  To change the limits of an
#: interface libvirt runs several processes, and meanwhile there is no limit.
WORTH_RAISING = {'disk': 0.05, 'interface': 0.2}
_KB = 1000      # unit of libvirt's rates of interfaces

Values = dict[str, int]
#: Limits by device: ``disk NAME`` or ``interface NAME``.
Devices = dict[str, Values]

_DISK_FIELDS = tuple(f'{way}_{unit}_sec{most}' for way in (
    'total', 'read', 'write') for unit in ('bytes', 'iops')
    for most in ('', '_max'))
_INTERFACE_FIELDS = tuple(f'{way}.{kind}' for way in ('inbound', 'outbound')
                          for kind in ('average', 'peak', 'burst'))


@dataclasses.dataclass(frozen=True)
class IoLimits:
    """Limits of a guest's traffic in each second; None removes a limit.

    ``net_*`` and ``disk_*`` are in bytes, ``*_iops`` in operations.  ``in``
    is traffic that the host receives, and data written to its disks.
    """

    net_in: float | None = None
    net_out: float | None = None
    disk_in: float | None = None
    disk_out: float | None = None
    disk_in_iops: float | None = None
    disk_out_iops: float | None = None


NOTHING = IoLimits()


class Unrecorded(ValueError):
    """The original limits of a domain cannot be known."""


def parse_record(text: str) -> Devices:
    """Return the original limits recorded in a metadata element.

    :raises Unrecorded: if the element is not such a record.
    """
    try:
        if '<!DOCTYPE' in text:
            raise ValueError('a document type')
        # The standard parser expands entities, which only a document type
        # can define.
        data = json.loads(
            ElementTree.fromstring(text).text or '')  # noqa: S314  # nosec
        return {
            str(device): {
                name: int(values[name]) for name in fields_of(device)
                if name in values}
            for device, values in data.items()}
    except (ElementTree.ParseError, ValueError, TypeError, AttributeError,
            KeyError) as exc:
        raise Unrecorded('the record of its original limits cannot be read: '
                         f'{exc}') from exc


def fields_of(device: str) -> tuple[str, ...]:
    """Return the names that libvirt gives to the limits of a device."""
    return (_DISK_FIELDS if device.startswith('disk ')
            else _INTERFACE_FIELDS)


def values_of(device: str, original: Mapping[str, int], limits: IoLimits,
              devices: int) -> Values:
    """Return the limits to set for a device, in libvirt's terms.

    :param original: its original limits, which are never exceeded.
    :param limits: those of the whole guest.
    :param devices: devices of this kind that share them evenly.
    """
    if device.startswith('disk '):
        return {**_disk(original, 'bytes', limits.disk_out, limits.disk_in,
                        devices),
                **_disk(original, 'iops', limits.disk_out_iops,
                        limits.disk_in_iops, devices)}
    return {**_interface(original, 'inbound', limits.net_in, devices),
            **_interface(original, 'outbound', limits.net_out, devices)}


def _lower(original: int, limit: float | None, devices: int,
           unit: int = 1) -> int:
    """Return the lower of two limits, where 0 and None mean no limit."""
    if limit is None:
        return original
    mine = max(1, round(limit / (1 + _BURST) / devices / unit))
    return min(mine, original) if original else mine


def _disk(original: Mapping[str, int], unit: str, read: float | None,
          write: float | None, devices: int) -> Values:
    """Return a disk's limits in one unit.

    All of them, since libvirt sets missing ones to zero.  Where the flavor
    limits reads and writes together, QEMU accepts no separate limits.  Then
    both together get the lower of the two.
    """
    was = {way: original.get(f'{way}_{unit}_sec', 0)
           for way in ('total', 'read', 'write')}
    if was['total']:
        both = min((one for one in (read, write) if one is not None),
                   default=None)
        now = {**was, 'total': _lower(was['total'], both, devices)}
    else:
        now = {'total': 0, 'read': _lower(was['read'], read, devices),
               'write': _lower(was['write'], write, devices)}
    values = {f'{way}_{unit}_sec': value for way, value in now.items()}
    for way, value in now.items():
        # A lowered limit lowers the burst of the flavor, too.
        if most := original.get(f'{way}_{unit}_sec_max', 0):
            values[f'{way}_{unit}_sec_max'] = (
                most if value == was[way] else value)
    return values


def _interface(original: Mapping[str, int], way: str, limit: float | None,
               devices: int) -> Values:
    names = [f'{way}.{kind}' for kind in ('average', 'peak', 'burst')]
    was = [original.get(name, 0) for name in names]
    average = _lower(was[0], limit, devices, _KB)
    # libvirt's own default would let a whole second's worth out at once.
    burst = (max(_LEAST_BURST_KB, round(_BURST * average))
             if way == 'outbound' else 0)
    return dict(zip(names, was if average == was[0] else [average, 0, burst],
                    strict=True))


def are_near(now: IoLimits, wanted: IoLimits) -> bool:
    """Return whether no limit differs enough to be set again."""
    return all(is_near(before or 0, after or 0) for before, after in zip(
        dataclasses.astuple(now), dataclasses.astuple(wanted), strict=True))


def is_near(now: float, wanted: float, raising: float = _HYSTERESIS) -> bool:
    """Return whether a change is too small to be worth a call of libvirt.

    A change from or to 0, which is no limit, is always worth it.
    """
    return now == wanted or (now > 0 < wanted and (1 - _HYSTERESIS) * now
                             <= wanted <= (1 + raising) * now)
