# SPDX-License-Identifier: Apache-2.0

import os

from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.sensors import network
from tests.unit.agent.sensors.cases import SensorTestCase, secondary


class NetworkSensorTest(SensorTestCase):

    def setUp(self):
        super().setUp()
        os.makedirs(self.host.path('net', 'eth0', 'device'))
        self.counters('eth0', 0, 0)
        self.counters('tap1', 0, 0)
        self.host.write('net/eth0/speed', '100')
        self.sensor = self.clocked(self.make(network.NetworkSensor, 'net'))
        self.guests = [secondary(1, ('tap1',)), secondary(2)]

    def counters(self, port, received, sent):
        self.host.write(f'net/{port}/statistics/rx_bytes', str(received))
        self.host.write(f'net/{port}/statistics/tx_bytes', str(sent))

    def read(self, seconds=1.0):
        self.now += seconds
        return self.sensor.read(self.guests)

    def test_use_is_in_percent_of_the_link(self):
        self.assertIsNone(self.read()['net_in'].total)
        self.counters('eth0', 5_000_000, 2_500_000)
        # Traffic received from a tap was sent by its guest.
        self.counters('tap1', 1_250_000, 2_500_000)
        found = self.read(2.0)
        self.assertAlmostEqual(20.0, found['net_in'].total)
        self.assertAlmostEqual(10.0, found['net_out'].total)
        self.assertEqual(12.5e6, found['net_out'].capacity)
        self.assertAlmostEqual(10.0, found['net_in'].instances['u1'])
        self.assertAlmostEqual(5.0, found['net_out'].instances['u1'])
        self.assertEqual({'u1'}, set(found['net_in'].instances))

    def test_counter_that_decreases_is_unknown(self):
        self.counters('eth0', 5000, 5000)
        self.read()
        self.counters('eth0', 10, 6000)
        found = self.read()
        self.assertIsNone(found['net_in'].total)
        self.assertIsNotNone(found['net_out'].total)

    def test_removed_port_of_a_guest_affects_only_this_guest(self):
        self.guests.append(secondary(3, ('tap1',)))
        self.guests[0] = secondary(1, ('tap1', 'gone'))
        self.read()
        found = self.read()
        self.assertEqual(0.0, found['net_in'].total)
        self.assertEqual({'u3': 0.0}, found['net_in'].instances)

    def test_counters_of_another_process_start_from_zero(self):
        self.counters('tap1', 5000, 5000)
        self.read()
        self.counters('tap1', 9000, 9000)
        self.guests = [Secondary('u1', 'i1', 5, 1, 1, 555, 8,
                                 taps=('tap1',))]
        self.assertEqual({}, self.read()['net_in'].instances)

    def test_option_link_speed_overrides_the_kernel(self):
        self.config(link_speed=1000)
        self.host.write('net/eth0/speed', '-1')
        self.read()
        self.counters('eth0', 12_500_000, 0)
        self.assertAlmostEqual(10.0, self.read()['net_in'].total)

    def test_unknown_link_speed_is_an_error(self):
        self.host.write('net/eth0/speed', '-1')
        with self.assertRaisesRegex(OSError, 'link_speed'):
            self.read()

    def test_virtual_functions_do_not_add_to_the_link_speed(self):
        for n in range(16):
            self.host.write(f'net/eth0v{n}/device/physfn', '')
            self.host.write(f'net/eth0v{n}/speed', '100')
            self.counters(f'eth0v{n}', 0, 0)
        self.read()
        self.counters('eth0', 11_250_000, 0)
        found = self.read()['net_in']
        self.assertAlmostEqual(90.0, found.total)
        self.assertEqual(12.5e6, found.capacity)

    def test_damaged_counter_is_unknown_and_reported(self):
        self.read()
        for text in ('', 'x', '-1', '9' * 5000):
            self.host.write('net/eth0/statistics/rx_bytes', text)
            found = self.read()['net_in']
            self.assertIsNone(found.total)
            self.assertIn('eth0/statistics/rx_bytes says', found.why)

    def test_damaged_counter_of_a_guest_affects_only_this_guest(self):
        self.read()
        self.host.write('net/tap1/statistics/rx_bytes', 'x')
        found = self.read()
        self.assertEqual(0.0, found['net_out'].total)
        self.assertEqual({}, found['net_out'].instances)
