"""Haizea's Lease Workload Format: XML, and the older lines of text.

Times are relative to the start of the workload (Haizea 2.6, 2.7).
"""

from collections.abc import Sequence
import dataclasses
import itertools
import math
import pathlib
import re
import typing
from xml.etree import ElementTree  # nosec B405: to write; what is read is not

from defusedxml import DefusedXmlException
from defusedxml import ElementTree as SafeTree
import numpy as np

from secondary_scheduler.leases.lease import (
    Kind,
    NodeSet,
    Terms,
    TermsError,
)
from secondary_scheduler.leases.site import Site
from secondary_scheduler.leases.types import Ints
from secondary_scheduler.simulation.workloads.requests import (
    Request,
    WorkloadError,
)

#: What a line of text tells: when it comes, when it starts (-1: whenever),
#: how long it asks for and how long it runs, how many nodes, and of each.
_FIELDS = ('submit', 'start', 'duration', 'real duration', 'nodes', 'cpu',
           'memory', 'disk', 'image', 'image size')
#: Of one CPU, in Haizea's units.
CPU_UNIT = 100

_TIME = re.compile(r'(\+?)(?:(\d+):)?(\d+):(\d+):(\d+(?:\.\d*)?)')


@dataclasses.dataclass(frozen=True)
class Workload:
    """A workload in XML: what the site is, and what it is asked for."""

    name: str
    description: str
    site: Site
    requests: tuple[Request, ...]


def is_xml(path: pathlib.Path) -> bool:
    """Tell the two formats apart."""
    try:
        with path.open('rb') as opened:
            return opened.read(256).lstrip(b'\xef\xbb\xbf \t\r\n'
                                           ).startswith(b'<')
    except OSError as exc:
        raise WorkloadError(f'{path}: {exc}') from exc


# -- lines of text

def read_text(path: pathlib.Path, prefix: str = '') -> list[Request]:
    """Read a file of the old text format.

    A lease with a start is a reservation that nobody may preempt, one
    without is best effort.  Ids are ``prefix`` and the number of the line.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise WorkloadError(f'{path}: {exc}') from exc
    requests = []
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields or line.lstrip().startswith('#'):
            continue
        try:
            requests.append(_from_text(fields, f'{prefix}{number}'))
        except ValueError as exc:
            raise WorkloadError(f'{path}, line {number}: no lease: {exc}'
                                ) from exc
    return requests


def _from_text(fields: Sequence[str], name: str) -> Request:
    if len(fields) < len(_FIELDS):
        raise ValueError(f'{len(fields)} fields, not ' + ', '.join(_FIELDS))
    submit, start, duration, runs, nodes, cpu, memory = (
        int(float(field)) for field in fields[:7])
    reserved = start != -1
    return Request(name, submit, Terms(
        (NodeSet(nodes, (cpu * CPU_UNIT, memory)),), duration,
        start=start if reserved else None, preemptible=not reserved,
        image=fields[8].strip("'\""), image_mb=int(float(fields[9]))),
        min(runs, duration))


# -- XML

def read(path: pathlib.Path) -> Workload:
    """Read a workload in XML."""
    try:
        root = SafeTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError, DefusedXmlException) as exc:
        raise WorkloadError(f'{path}: {exc}') from exc
    try:
        site = _site(_child(root, 'site'))
        requests = tuple(_request(one, site.resources) for one
                         in _child(root, 'lease-requests'))
    except ValueError as exc:
        raise WorkloadError(f'{path}: {exc}') from exc
    twice = len(requests) - len({one.id for one in requests})
    if twice:
        raise WorkloadError(f'{path}: {twice} leases have the id of another')
    return Workload(root.get('name', path.stem),
                    (root.findtext('description') or '').strip(), site,
                    requests)


def _child(parent: ElementTree.Element, name: str) -> ElementTree.Element:
    found = parent.find(name)
    if found is None:
        raise WorkloadError(f'<{parent.tag}> has no <{name}>')
    return found


def _text(element: ElementTree.Element, name: str) -> str:
    value = element.get(name)
    if value is None:
        raise WorkloadError(f'<{element.tag}> has no {name}')
    return value


def _site(element: ElementTree.Element) -> Site:
    resources = tuple(_text(_child(element, 'resource-types'), 'names'
                            ).split())
    hosts = [one for one in _node_sets(_child(element, 'nodes'), resources)
             for _ in range(one.number)]
    if not hosts:
        raise WorkloadError('<site> has no nodes')
    return Site(
        resources, np.array([one.need for one in hosts], dtype=np.int64),
        tuple(one.attributes for one in hosts),
        instances={index: _instances(hosts, index) for index in sorted(
            {index for one in hosts for index in one.instances})})


def _instances(hosts: Sequence[NodeSet], index: int) -> Ints:
    """Return how much of a resource each instance is, (hosts, instances)."""
    return np.array(list(itertools.zip_longest(
        *(one.parts(index) for one in hosts), fillvalue=0)),
        dtype=np.int64).T


def _node_sets(element: ElementTree.Element, resources: tuple[str, ...]
               ) -> list[NodeSet]:
    sets = []
    for one in element:
        amounts: dict[str, tuple[int, ...]] = {}
        for res in one.findall('res'):
            name = _text(res, 'type')
            if name in amounts:
                raise WorkloadError(f'a node has {name} twice')
            if name not in resources:
                raise WorkloadError(f'a node has {name}, which is not among '
                                    'the resource-types: '
                                    + ' '.join(resources))
            amounts[name] = tuple(int(_text(part, 'amount')) for part
                                  in res.findall('instance') or [res])
            if len(amounts[name]) > 1 and min(amounts[name]) < 1:
                raise WorkloadError(f'each instance of {name} has an amount '
                                    'of at least 1')
        parts = [amounts.get(name, (0,)) for name in resources]
        sets.append(NodeSet(
            int(one.get('numnodes', 1)), tuple(map(sum, parts)),
            {_text(attr, 'type'): _text(attr, 'value')
             for attr in one.findall('attr')},
            {index: part for index, part in enumerate(parts)
             if len(part) > 1}))
    return sets


def _seconds(text: str, arrival: int = 0) -> int:
    """Read a time; with a plus before it, it counts from the arrival."""
    found = _TIME.fullmatch(text.strip())
    if not found:
        raise WorkloadError(f'{text!r} is no time, as 01:30:00.00 is')
    relative, days, hours, minutes, seconds = found.groups()
    return math.ceil(int(days or 0) * 86400 + int(hours) * 3600
                     + int(minutes) * 60 + float(seconds)
                     ) + (arrival if relative else 0)


def _request(element: ElementTree.Element, resources: tuple[str, ...]
             ) -> Request:
    arrival = _seconds(_text(element, 'arrival'))
    lease = _child(element, 'lease')
    name = _text(lease, 'id')
    try:
        start = lease.find('start')
        exact = None if start is None else start.find('exact')
        deadline = lease.find('deadline')
        image = lease.find('software/disk-image')
        duration = _seconds(_text(_child(lease, 'duration'), 'time'))
        real = element.find('realduration')
        terms = Terms(
            tuple(_node_sets(_child(lease, 'nodes'), resources)), duration,
            start=None if exact is None
            else _seconds(_text(exact, 'time'), arrival),
            deadline=None if deadline is None
            else _seconds(_text(deadline, 'time'), arrival),
            preemptible=lease.get('preemptible') == 'true',
            immediate=start is not None and start.find('now') is not None,
            user=lease.get('user', ''),
            image=None if image is None else _text(image, 'id'),
            image_mb=0 if image is None else int(_text(image, 'size')))
    except TermsError as exc:
        raise WorkloadError(f'lease {name}: {exc}') from exc
    return Request(name, arrival, terms, duration if real is None
                   else min(_seconds(_text(real, 'time')), duration))


def write(workload: Workload, path: pathlib.Path) -> None:
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
    """Return what a host has."""
    return NodeSet(
        1, tuple(site.capacity[host].tolist()),
        site.attributes[host] if site.attributes else {},
        {index: tuple(amounts[host][amounts[host] > 0].tolist())
         for index, amounts in site.instances.items()})


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


def _add_request(parent: ElementTree.Element, request: Request,
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
    if terms.kind is Kind.IMMEDIATE:
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
