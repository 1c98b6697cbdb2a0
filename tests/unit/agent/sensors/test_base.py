# SPDX-License-Identifier: Apache-2.0

from secondary_scheduler.agent import cgroups
from secondary_scheduler.agent.sensors import (
    base,
    disk,
    interference,
    memory,
    network,
    probes,
)
from tests.unit.agent.sensors.cases import SensorTestCase


class LoadSensorsTest(SensorTestCase):

    def test_all_sensors_are_loaded_by_default(self):
        found = base.load_sensors(self.fixture.conf,
                          cgroups.Hierarchy(self.host.proc))
        self.assertLessEqual(
            {'memory': memory.MemorySensor, 'network': network.NetworkSensor,
             'disk': disk.DiskSensor, 'pressure': interference.PressureSensor,
             'steal': interference.StealSensor,
             'resctrl': interference.ResctrlSensor,
             'probe': probes.ProbeSensor}.items(),
            {name: type(sensor) for name, sensor in found.items()}.items())

    def test_missing_sensor_is_an_error(self):
        self.config(sensors=['memory', 'moon'])
        with self.assertRaisesRegex(ValueError, 'sensors = moon'):
            base.load_sensors(self.fixture.conf,
                      cgroups.Hierarchy(self.host.proc))
