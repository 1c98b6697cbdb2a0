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

    def test_the_built_in_ones(self):
        found = base.load_sensors(self.fixture.conf,
                          cgroups.Hierarchy(self.host.proc))
        self.assertEqual(
            {'memory': memory.MemorySensor, 'network': network.NetworkSensor,
             'disk': disk.DiskSensor, 'pressure': interference.PressureSensor,
             'steal': interference.StealSensor,
             'resctrl': interference.ResctrlSensor,
             'probe': probes.ProbeSensor},
            {name: type(sensor) for name, sensor in found.items()})

    def test_one_that_is_not_there(self):
        self.config(sensors=['memory', 'moon'])
        with self.assertRaisesRegex(ValueError, 'sensors = moon'):
            base.load_sensors(self.fixture.conf,
                      cgroups.Hierarchy(self.host.proc))
