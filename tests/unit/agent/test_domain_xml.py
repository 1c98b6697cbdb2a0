# SPDX-License-Identifier: Apache-2.0

import unittest

from secondary_scheduler.agent import domain_xml
from tests.unit.agent import fakes


def read(xml, uuid=fakes.UUIDS[0]):
    return domain_xml.read_guest(xml, uuid)


class ReadGuest(unittest.TestCase):
    def test_marked_flavor_makes_a_secondary(self):
        guest = read(fakes.domain_xml(
            fakes.UUIDS[0], 'i', fakes.nova_metadata(fakes.MARKED)))
        self.assertEqual(
            domain_xml.DomainGuest(fakes.UUIDS[0], 'i', 4, 2, memory_mb=128,
                                   flavor='f'),
            guest,
        )

    def test_valid_taps_are_found(self):
        xml = fakes.domain_xml(
            fakes.UUIDS[0], 'i', fakes.nova_metadata(fakes.MARKED))
        taps = ''.join(
            f'<interface type="bridge"><target dev="{name}"/></interface>'
            for name in ('tap1-a', '../../etc', '..', '', 'x' * 16, 'vnet0'))
        guest = read(xml.replace('</domain>', '<devices><disk><target '
                                 f'dev="vda"/></disk>{taps}</devices>'
                                 '</domain>'))
        self.assertEqual(('tap1-a', 'vnet0'), guest.taps)

    def test_local_disks_are_found(self):
        xml = fakes.domain_xml(
            fakes.UUIDS[0], 'i', fakes.nova_metadata(fakes.MARKED))
        disks = ''.join(
            f'<disk type="{kind}"{device}><target dev="{name}"/></disk>'
            for kind, device, name in (
                ('file', '', 'vda'), ('block', ' device="lun"', 'sda'),
                ('network', ' device="disk"', 'vdb'),
                ('file', ' device="cdrom"', 'hda'), ('file', '', '../x'),
                ('volume', ' device="disk"', 'vdc')))
        guest = read(xml.replace(
            '</domain>', f'<devices>{disks}<disk type="file"/>'
            '<interface><target dev="t"/></interface></devices></domain>'))
        self.assertEqual(('disk vda', 'disk sda', 'disk vdc', 'interface t'),
                         guest.devices)

    def test_record_of_limits_is_found(self):
        metadata = fakes.nova_metadata(fakes.MARKED)
        for text, limited in (
                ('', False),
                (f'<a:limits xmlns:a="{domain_xml.LIMITS}"/>', True),
                ('<a:limits xmlns:a="x"/>', False)):
            with self.subTest(text):
                self.assertEqual(limited, read(fakes.domain_xml(
                    fakes.UUIDS[0], 'i', metadata + text)).limited)

    def test_guests_without_marker_are_primaries(self):
        for metadata in ('', '<x/>', fakes.nova_metadata({}),
                         fakes.nova_metadata(
                             {'lifecycle:preemptable': 'false'})):
            self.assertIsNone(read(fakes.domain_xml(
                fakes.UUIDS[0], 'i', metadata)))

    def test_marker_elsewhere_does_not_count(self):
        spec = ('<nova:extraSpec xmlns:nova="http://openstack.org/xmlns/'
                'libvirt/nova/1.1" name="lifecycle:preemptable">true'
                '</nova:extraSpec>')
        self.assertIsNone(read(fakes.domain_xml(fakes.UUIDS[0], 'i', spec)))
        instance = fakes.nova_metadata({}).replace(
            '</nova:owner>', '<nova:extraSpec name="lifecycle:preemptable">'
            'true</nova:extraSpec></nova:owner>')
        self.assertIsNone(read(fakes.domain_xml(
            fakes.UUIDS[0], 'i', instance)))

    def test_ambiguous_xml_is_refused(self):
        good = fakes.nova_metadata(fakes.MARKED)
        xml = fakes.domain_xml(fakes.UUIDS[0], 'i', good)
        twice = good.replace(
            '<nova:extraSpecs>', '<nova:extraSpecs><nova:extraSpec '
            'name="lifecycle:preemptable">false</nova:extraSpec>')
        bad = (xml[:-5], '', '<domain/>', xml + ' ' * (1 << 20),
               '<!DOCTYPE d [<!ENTITY a "b">]>' + xml,
               fakes.domain_xml(fakes.UUIDS[1], 'i', good),
               fakes.domain_xml(fakes.UUIDS[0], 'i', good + good),
               fakes.domain_xml(fakes.UUIDS[0], 'i', twice))
        for text in bad:
            with self.subTest(text[:80]), self.assertRaises(
                    domain_xml.UnreadableDomain):
                read(text)
