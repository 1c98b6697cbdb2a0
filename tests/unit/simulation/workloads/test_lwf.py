# SPDX-License-Identifier: Apache-2.0

"""Haizea's Lease Workload Format."""

import pathlib
import tempfile
import unittest

from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.workloads import lwf
from tests.unit.simulation.workloads.samples import XML


class TextTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_lines_of_text_are_read(self):
        path = self.folder / 'some.lwf'
        path.write_text(
            "0 9415 3438 3000 16 1 1024 0 'NONE.img' 600\n"
            "# a comment\n\n"
            "60 -1 100 400 2 2 512 0 'a.img' 4096\n"
            "0 -60 100 100 2 2 512 0 'a.img' 4096\n"
        )
        reserved, queued, past = lwf.read_text(path, 'r')
        self.assertIs(LeaseKind.RESERVATION, past.terms.kind)
        self.assertEqual(-60, past.terms.start)
        self.assertFalse(lwf.is_xml(path))
        self.assertEqual(('r1', 'r4'), (reserved.id, queued.id))
        self.assertIs(LeaseKind.RESERVATION, reserved.terms.kind)
        self.assertFalse(reserved.terms.preemptible)
        self.assertTrue(queued.terms.preemptible)
        self.assertEqual((9415, 3000), (reserved.terms.start, reserved.runs))
        self.assertIs(LeaseKind.BEST_EFFORT, queued.terms.kind)
        self.assertEqual((200, 512), queued.terms.nodes[0].need)
        self.assertEqual(
            ('a.img', 4096), (queued.terms.image, queued.terms.image_mb)
        )
        self.assertEqual(100, queued.runs)

    def test_invalid_line_of_text_is_named(self):
        for line, says in (
            ('1 2 3', 'expected 10 fields, submit, start, .*, not 3'),
            (
                '0 1 x 1 1 1 1 0 i 1',
                'line 1: field 3, duration: expected a number',
            ),
            ('0 1 0 1 1 1 1 0 i 1', 'at least a second'),
        ):
            with self.subTest(line=line, says=says):
                path = self.folder / 'some.lwf'
                path.write_text(line)
                with self.assertRaisesRegex(InputError, says):
                    lwf.read_text(path)


class XmlTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.sample = self.folder / 'sample.lwf'
        self.sample.write_text(XML)

    def test_xml_is_read(self):
        self.assertTrue(lwf.is_xml(self.sample))
        read = lwf.read_workload(self.sample)
        self.assertEqual(
            ('sample', 'Some of each.'), (read.name, read.description)
        )
        self.assertEqual(
            [[100, 1024]] * 3 + [[800, 8192]], read.site.capacity.tolist()
        )
        first, second, third = read.requests
        self.assertEqual(
            [LeaseKind.BEST_EFFORT, LeaseKind.DEADLINE, LeaseKind.IMMEDIATE],
            [one.terms.kind for one in read.requests],
        )
        self.assertEqual((2700, 3600), (first.runs, first.terms.duration))
        self.assertEqual(
            ('anna', True), (first.terms.user, first.terms.preemptible)
        )
        self.assertEqual(
            ('foobar1.img', 1024), (first.terms.image, first.terms.image_mb)
        )
        self.assertEqual((900, 1800), (second.arrival, second.terms.start))
        self.assertEqual(3631, second.terms.deadline)
        self.assertIsNone(second.terms.image)
        self.assertEqual({'arch': 'arm'}, second.terms.nodes[0].attributes)
        self.assertEqual(
            [False, False, False, True],
            read.site.usable_hosts(second.terms.nodes[0]).tolist(),
        )
        self.assertEqual((3600, 86400), (third.arrival, third.terms.duration))

    def test_written_workload_is_read_again(self):
        read = lwf.read_workload(self.sample)
        lwf.write_workload(read, self.folder / 'again.lwf')
        again = lwf.read_workload(self.folder / 'again.lwf')
        self.assertEqual(read.requests, again.requests)
        self.assertEqual(
            (read.name, read.description), (again.name, again.description)
        )
        self.assertTrue((again.site.capacity == read.site.capacity).all())
        self.assertEqual(read.site.attributes, again.site.attributes)

    def test_units_of_a_resource(self):
        """Three hosts have three CPUs each, and a lease asks for two."""
        one, several = (
            '<res type="CPU" amount="100"/>',
            (
                '<res type="CPU"><instance amount="100"/>'
                '<instance amount="60"/>{}</res>'
            ),
        )
        first, *others = XML.split(one)
        self.sample.write_text(
            first
            + several.format('<instance amount="100"/>')
            + others[0]
            + several.format('')
            + one.join(others[1:])
        )
        read = lwf.read_workload(self.sample)
        self.assertEqual([260] * 3 + [800], read.site.capacity[:, 0].tolist())
        self.assertEqual(
            [[100, 60, 100]] * 3 + [[800, 0, 0]], read.site.units[0].tolist()
        )
        asked = [one.terms.nodes[0] for one in read.requests]
        self.assertEqual(
            [(160, 512), (100, 0), (100, 0)], [one.need for one in asked]
        )
        self.assertEqual(
            [{0: (100, 60)}, {}, {}], [one.units for one in asked]
        )
        lwf.write_workload(read, self.folder / 'again.lwf')
        again = lwf.read_workload(self.folder / 'again.lwf')
        self.assertEqual(read.requests, again.requests)
        self.assertTrue((again.site.columns == read.site.columns).all())
        self.assertEqual(read.site.attributes, again.site.attributes)

    def test_invalid_xml_names_the_line(self):
        for old, new, says in (
            ('</lease-workload>', '', 'no element found'),
            ('<site>', '<sight>', 'mismatched tag'),
            ('name="sample">', 'name="sample"><site2/>', None),
            (
                'names="CPU Memory"',
                'names="CPU"',
                'line 8: <res>: type: expected one of CPU, not "Memory"',
            ),
            (
                '<duration time="01:00:00.00"/>',
                '',
                'line 19: <lease>: expected a <duration> in it',
            ),
            (
                'time="01:00:00.00"',
                'time="an hour"',
                'line 24: <duration>: time: expected a time like .*, not '
                '"an hour"',
            ),
            ('id="2"', 'id="1"', 'line 28: .* an id of its own, not .* "1"'),
            ('id="1" ', '', 'line 19: <lease>: expected the attribute id'),
            (
                'amount="512"',
                'amount="half"',
                'line 21: <res>: amount: expected a whole number from 0 to '
                '.*"half"',
            ),
            (
                '<res type="CPU" amount="100"/>',
                '<res type="CPU"><instance amount="1"/>'
                '<instance amount="0"/></res>',
                'amount: expected a whole number from 1',
            ),
            (
                '<res type="CPU" amount="100"/>',
                '<res type="CPU"><instance/></res>',
                '<instance>: expected the attribute amount',
            ),
            (
                'time="01:00:30.50"',
                'time="00:50:00"',
                'line 29: .* lease "2": a duration of 1800 s',
            ),
            (
                '<res type="CPU" amount="100"/>'
                '<res type="Memory" amount="1024"/>',
                '<res type="CPU" amount="100"/><res type="CPU" amount="100"/>',
                'expected each type once, not CPU twice',
            ),
            (
                '<?xml version="1.0"?>',
                '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]>',
                'EntitiesForbidden',
            ),
        ):
            with self.subTest(old=old, new=new, says=says):
                self.assertIn(old, XML)
                self.sample.write_text(XML.replace(old, new, 1))
                if says is None:
                    self.assertEqual(
                        'sample', lwf.read_workload(self.sample).name
                    )
                    return
                with self.assertRaisesRegex(InputError, says):
                    lwf.read_workload(self.sample)
