# SPDX-License-Identifier: Apache-2.0

"""Haizea's Lease Workload Format: XML, and the older lines of text.

Times are relative to the start of the workload (Sotomayor 2010, figures 4.4
and 4.5).
"""

from collections.abc import Sequence
import dataclasses
import itertools
import math
import pathlib
import re
import typing
from xml.etree import ElementTree  # nosec B405: to write; what is read is not

import numpy as np

from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.leases.scheduling.lease import (
    NodeSet,
    Terms,
    TermsError,
)
from secondary_scheduler.leases.scheduling.site import Site
from secondary_scheduler.leases.scheduling.types import Ints
from secondary_scheduler.reading import files, markup
from secondary_scheduler.reading.values import MOST, shown
from secondary_scheduler.simulation.workloads.requests import (
    MOST_NODES,
    TraceRequest,
)

#: Fields of a line of text.  A start of -1 is open; cpu, memory and disk are
#: of each node.
_FIELDS = ('submit', 'start', 'duration', 'real duration', 'nodes', 'cpu',
           'memory', 'disk', 'image', 'image size')
#: One CPU in Haizea's units.
CPU_UNIT = 100

#: Days, hours, minutes and seconds; with a plus relative to the arrival.
_TIME = re.compile(r'(\+?)(?:(\d{1,9}):)?(\d{1,12}):(\d{1,12}):'
                   r'(\d{1,12}(?:\.\d*)?)', re.ASCII)


@dataclasses.dataclass(frozen=True)
class LwfWorkload:
    """Workload in XML: a site and requests for leases."""

    name: str
    description: str
    site: Site
    requests: tuple[TraceRequest, ...]


def is_xml(path: pathlib.Path) -> bool:
    """Return whether a file is in XML.

    :raises InputError: if the file cannot be read.
    """
    return files.read_bytes(path)[:256].lstrip(
        b'\xef\xbb\xbf\xfe\xff\0 \t\r\n').startswith(b'<')


# -- lines of text

def read_text(path: pathlib.Path, prefix: str = '') -> list[TraceRequest]:
    """Read a file of the old text format.

    A lease with a start is a reservation that cannot be preempted; a lease
    without one is best effort.  Ids are ``prefix`` and the number of the line.

    :raises InputError: naming the invalid line.
    """
    return [_from_text(row, f'{prefix}{row.line}')
            for row in files.read_table(path, '#')]


def _from_text(row: files.Row, name: str) -> TraceRequest:
    if len(row.values) < len(_FIELDS):
        raise row.wrong(f'no lease: expected {len(_FIELDS)} fields, '
                        + ', '.join(_FIELDS) + f', not {len(row.values)}')
    submit, start, duration, runs = (
        int(row.number(index, _FIELDS[index], least))
        for index, least in enumerate((0, -MOST, 0, 0)))
    nodes, cpu, memory = (
        int(row.number(index, _FIELDS[index], 0, most))
        for index, most in ((4, MOST_NODES), (5, MOST / CPU_UNIT), (6, MOST)))
    reserved = start != -1
    try:
        terms = Terms(
            (NodeSet(nodes, (cpu * CPU_UNIT, memory)),), duration,
            start=start if reserved else None, preemptible=not reserved,
            image=row.values[8].strip("'\""),
            image_mb=int(row.number(9, _FIELDS[9])))
    except TermsError as exc:
        raise row.wrong(f'no lease: {exc}') from exc
    return TraceRequest(name, submit, terms, min(max(runs, 1), duration))


# -- XML

def read_workload(path: pathlib.Path, site: Site | None = None
                  ) -> LwfWorkload:
    """Read a workload in XML.

    :param site: site to run it on, with resources in any order; None for the
        site that the file describes.
    :raises InputError: naming the line and its expected content.
    """
    root = markup.read_xml(path)
    described = root.find('site')
    if site is None or described is not None:
        own = _site(root.child('site'))
        site = own if site is None else site
    requests = tuple(_request(one, site.resources) for one
                     in root.child('lease-requests').children)
    found = set()
    for one, element in zip(requests, root.child('lease-requests').children,
                            strict=True):
        if one.id in found:
            raise element.wrong('expected an id of its own, not that of '
                                f'another lease, {shown(one.id)}')
        found.add(one.id)
    about = root.find('description')
    return LwfWorkload(root.get('name', path.stem),
                       '' if about is None else about.text.strip(), site,
                       requests)


def _site(element: markup.Element) -> Site:
    resources = tuple(element.child('resource-types').get('names').split())
    nodes = element.child('nodes')
    sets = _node_sets(nodes, resources)
    if not 0 < sum(one.number for one in sets) <= MOST_NODES:
        raise nodes.wrong(f'expected 1 to {MOST_NODES} nodes in all')
    hosts = [one for one in sets for _ in range(one.number)]
    try:
        return Site(
            resources, np.array([one.need for one in hosts], dtype=np.int64),
            tuple(one.attributes for one in hosts),
            units={index: _units(hosts, index) for index in sorted(
                {index for one in hosts for index in one.units})})
    except TermsError as exc:
        raise element.wrong(str(exc)) from exc


def _units(hosts: Sequence[NodeSet], index: int) -> Ints:
    """Return the size of each unit of a resource, shape (hosts, units)."""
    return np.array(list(itertools.zip_longest(
        *(one.parts(index) for one in hosts), fillvalue=0)),
        dtype=np.int64).T


def _node_sets(element: markup.Element, resources: tuple[str, ...]
               ) -> list[NodeSet]:
    sets = []
    for one in element.children:
        amounts: dict[str, tuple[int, ...]] = {}
        for res in one.every('res'):
            name = res.choice('type', resources)
            if name in amounts:
                raise res.wrong(f'expected each type once, not {name} twice')
            parts = list(res.every('instance'))
            amounts[name] = tuple(part.whole('amount', least=int(
                len(parts) > 1)) for part in parts or [res])
        needs = [amounts.get(name, (0,)) for name in resources]
        sets.append(NodeSet(
            one.whole('numnodes', 1, most=MOST_NODES), tuple(map(sum, needs)),
            {attr.get('type'): attr.get('value')
             for attr in one.every('attr')},
            {index: part for index, part in enumerate(needs)
             if len(part) > 1}))
    return sets


def _seconds(element: markup.Element, name: str, arrival: int = 0) -> int:
    """Read a time; one with a plus is relative to the arrival."""
    text = element.get(name)
    found = _TIME.fullmatch(text.strip())
    if found:
        relative, days, hours, minutes, seconds = found.groups()
        value = math.ceil(int(days or 0) * 86400 + int(hours) * 3600
                          + int(minutes) * 60 + float(seconds)
                          ) + (arrival if relative else 0)
        if value <= MOST:
            return value
    raise element.wrong(f'{name}: expected a time like 01:30:00.00, of at '
                        f'most {MOST} s, not {shown(text)}')


def _request(element: markup.Element, resources: tuple[str, ...]
             ) -> TraceRequest:
    arrival = _seconds(element, 'arrival')
    lease = element.child('lease')
    name = lease.get('id')
    start = lease.find('start')
    exact = lease.find('start', 'exact')
    deadline = lease.find('deadline')
    image = lease.find('software', 'disk-image')
    duration = _seconds(lease.child('duration'), 'time')
    real = element.find('realduration')
    nodes = tuple(_node_sets(lease.child('nodes'), resources))
    try:
        terms = Terms(
            nodes, duration,
            start=None if exact is None
            else _seconds(exact, 'time', arrival),
            deadline=None if deadline is None
            else _seconds(deadline, 'time', arrival),
            preemptible=lease.get('preemptible', 'false') == 'true',
            immediate=start is not None and start.find('now') is not None,
            user=lease.get('user', ''),
            image=None if image is None else image.get('id'),
            image_mb=0 if image is None else image.whole('size'))
    except TermsError as exc:
        raise lease.wrong(f'lease {shown(name)}: {exc}') from exc
    return TraceRequest(
        name,
        arrival,
        terms,
        duration
        if real is None
        else min(max(_seconds(real, 'time'), 1), duration),
    )


def write_workload(workload: LwfWorkload, path: pathlib.Path) -> None:
    """Write a workload in XML."""
    root = ElementTree.Element('lease-workload', name=workload.name)
    _add(root, 'description').text = workload.description
    site = _add(root, 'site')
    resources = workload.site.resources
    _add(site, 'resource-types', names=' '.join(resources))
    nodes = _add(site, 'nodes')
    for host in range(len(workload.site.capacity)):
        _add_nodes(nodes, _host(workload.site, host), resources)
    requests = _add(root, 'lease-requests')
    for request in workload.requests:
        _add_request(requests, request, resources)
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, encoding='utf-8',
                                        xml_declaration=True)


def _host(site: Site, host: int) -> NodeSet:
    """Return a host as a set of one node."""
    return NodeSet(
        1, tuple(site.capacity[host].tolist()),
        site.attributes[host] if site.attributes else {},
        {index: tuple(amounts[host][amounts[host] > 0].tolist())
         for index, amounts in site.units.items()})


def _add(parent: ElementTree.Element, tag: str, **attributes: str
         ) -> ElementTree.Element:
    return ElementTree.SubElement(parent, tag, attributes)


def _add_nodes(parent: ElementTree.Element, nodes: NodeSet,
               resources: tuple[str, ...]) -> None:
    one = _add(parent, 'node-set', numnodes=str(nodes.number))
    for index, name in enumerate(resources):
        parts = nodes.parts(index)
        if len(parts) > 1:
            res = _add(one, 'res', type=name)
            for part in parts:
                _add(res, 'instance', amount=str(part))
        elif nodes.need[index]:
            _add(one, 'res', type=name, amount=str(nodes.need[index]))
    for name, value in nodes.attributes.items():
        _add(one, 'attr', type=name, value=value)


def _add_request(parent: ElementTree.Element, request: TraceRequest,
                 resources: tuple[str, ...]) -> None:
    terms = request.terms
    outer = _add(parent, 'lease-request', arrival=_clock(request.arrival))
    if request.runs != terms.duration:
        _add(outer, 'realduration', time=_clock(request.runs))
    user: dict[str, typing.Any] = {'user': terms.user} if terms.user else {}
    lease = _add(outer, 'lease', id=request.id,
                 preemptible=str(terms.preemptible).lower(), **user)
    nodes = _add(lease, 'nodes')
    for one in terms.nodes:
        _add_nodes(nodes, one, resources)
    start = _add(lease, 'start')
    if terms.kind is LeaseKind.IMMEDIATE:
        _add(start, 'now')
    elif terms.start is not None:
        _add(start, 'exact', time=_clock(terms.start))
    _add(lease, 'duration', time=_clock(terms.duration))
    if terms.deadline is not None:
        _add(lease, 'deadline', time=_clock(terms.deadline))
    software = _add(lease, 'software')
    if terms.image is None:
        _add(software, 'none')
    else:
        _add(software, 'disk-image', id=terms.image, size=str(terms.image_mb))


def _clock(seconds: int) -> str:
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    return f'{hours:02}:{minute:02}:{second:02}.00'
