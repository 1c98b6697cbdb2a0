# SPDX-License-Identifier: Apache-2.0

"""Classes of running secondaries: a tenant never gets a better one."""

import dataclasses
import unittest

import hypothesis
from hypothesis import strategies as st

from secondary_scheduler.agent import domain_xml, workload_classes
from secondary_scheduler.agent.domains import Secondary
from secondary_scheduler.agent.workload_classes import WorkloadClasses
from secondary_scheduler.cpu_affinity.measurements import Measurement
from secondary_scheduler.cpu_affinity.profile_learning import (
    ObservedSlowdown,
)
from secondary_scheduler.cpu_affinity.workload_profiles import (
    parse_profiles,
)
from tests.unit import fuzzing
from tests.unit.agent import fakes

IMAGE = '6b1f0b0e-6f0e-4f43-9a44-0d2f6b1c7e55'
LEARNED = f'{IMAGE}/small'
PROFILES = parse_profiles({
    'classes': ['quiet', 'noisy'],
    'uses': {'quiet': {'cpu': 20}, 'noisy': {'cpu': 100}},
    'time_sharing': [[1.1, 1.6], [1.2, 2.5]],
    'space_sharing': [[1.0, 1.3], [1.1, 1.5]]})


def guest(n=0, **fields):
    return Secondary(fakes.UUIDS[n], f'instance-{n}', 4, 2, id=1, pid=2,
                     started=3, **fields)


def slowdowns(profiles, classes=('quiet', 'noisy', None)):
    return {(kind, victim, neighbour): matrix.slowdown(victim, neighbour)
            for kind, matrix in (('time', profiles.time_sharing),
                                 ('space', profiles.space_sharing))
            for victim in classes for neighbour in classes}


class WorkloadClassesTest(unittest.TestCase):

    def setUp(self):
        self.store = fakes.Host(self).store
        self.classes = self.make()
        self.log = fuzzing.Log(self)

    def make(self, cpu_model='EPYC'):
        return WorkloadClasses(PROFILES, cpu_model, self.store)

    def observe(self, slowdown, times=1, classes=None, **parts):
        for _ in range(times):
            (classes or self.classes).observe([ObservedSlowdown(
                *parts.values(), slowdown)])

    def test_flavor_names_the_class_and_else_image_and_flavor(self):
        image = guest(1, image=IMAGE, flavor='small')
        self.classes.update([guest(workload_class='quiet'), image, guest(2)])
        self.assertEqual(['quiet', LEARNED, None], [
            self.classes.class_of(one) for one in (
                guest(workload_class='quiet', image=IMAGE, flavor='small'),
                image, guest(2, flavor='small'))])

    def test_unknown_class_is_the_worst_and_named_once(self):
        for _ in range(3):
            self.classes.update([guest(workload_class='gold')])
        self.assertEqual(['The class gold of ' + fakes.UUIDS[0]
                          + ' has no profile; the worst known class stands in '
                          'for it'], self.log.lines)
        self.assertEqual(2.5, self.classes.profiles.time_sharing.slowdown(
            'gold', 'noisy'))
        self.assertEqual((), self.classes.learned)

    def test_new_image_begins_with_the_worst_known_class(self):
        self.classes.update([guest(image=IMAGE, flavor='small')])
        time = self.classes.profiles.time_sharing
        self.assertEqual([1.2, 2.5, 1.6, 2.5], [
            time.slowdown(LEARNED, 'quiet'), time.slowdown(LEARNED, 'noisy'),
            time.slowdown('quiet', LEARNED), time.slowdown(LEARNED, LEARNED)])

    def test_load_makes_a_measured_class_only_worse(self):
        before = slowdowns(PROFILES)
        self.observe(1.0, 50, victim='noisy', on_cpu=('noisy',), beside=())
        self.observe(1.0, 50, victim='quiet', on_cpu=(), beside=('noisy',))
        self.assertEqual(before, slowdowns(self.classes.profiles))
        self.observe(2.4, 5, victim='quiet', on_cpu=('noisy',), beside=())
        after = slowdowns(self.classes.profiles)
        self.assertGreater(after['time', 'quiet', 'noisy'], 2.2)

    def test_learned_class_falls_slowly_and_rises_at_once(self):
        self.classes.update([guest(image=IMAGE, flavor='small')])
        seen = [2.5]
        for slowdown in (1.25,) * 200 + (2.5,) * 2:
            self.observe(slowdown, victim='noisy', on_cpu=(LEARNED,),
                         beside=())
            seen.append(self.classes.profiles.time_sharing.slowdown(
                'noisy', LEARNED))
        for before, after in zip(seen[:200], seen[1:], strict=False):
            self.assertGreaterEqual(
                after, before * (1 - workload_classes.MOST_FALL) - 1e-9)
        self.assertGreater(seen[30], 1.6)
        self.assertLess(seen[200], 1.4)
        self.assertGreater(seen[202], 1.9)

    def test_more_images_than_can_be_learned_change_nothing_each_time(self):
        guests = [dataclasses.replace(guest(), image=IMAGE, flavor=f'f{n}')
                  for n in range(workload_classes.MOST_LEARNED + 1)]
        self.classes.update(guests[:1])
        learned = self.classes.learned[0]
        self.observe(1.25, victim='noisy', on_cpu=(learned,), beside=())
        before = self.classes.profiles.time_sharing.slowdown('noisy', learned)
        self.classes.update(guests)
        found = self.classes.profiles
        self.assertEqual(before,
                         found.time_sharing.slowdown('noisy', learned))
        for _ in range(100):
            self.classes.update(guests)
        self.assertIs(found, self.classes.profiles)

    def test_learned_class_makes_no_other_class_better(self):
        self.classes.update([guest(image=IMAGE, flavor='small')])
        before = slowdowns(PROFILES)
        for one in ('quiet', 'noisy', LEARNED):
            for other in ('quiet', 'noisy', LEARNED):
                self.observe(1.0, 100, victim=one, on_cpu=(other,), beside=())
        after = slowdowns(self.classes.profiles)
        for key, value in before.items():
            self.assertGreaterEqual(after[key], value, key)

    def test_what_was_learned_is_for_its_cpu_model(self):
        self.classes.update([guest(image=IMAGE, flavor='small')])
        self.observe(4.0, 3, victim=LEARNED, on_cpu=('quiet',), beside=())
        learned = self.classes.profiles.time_sharing.slowdown(LEARNED,
                                                              'quiet')
        self.assertGreater(learned, 3.0)
        again = self.make()
        self.assertEqual((LEARNED,), again.learned)
        self.assertAlmostEqual(
            learned, again.profiles.time_sharing.slowdown(LEARNED, 'quiet'),
            delta=0.2)
        self.observe(4.0, 1, again, victim=LEARNED, on_cpu=('quiet',),
                     beside=())
        self.assertAlmostEqual(
            learned, again.profiles.time_sharing.slowdown(LEARNED, 'quiet'),
            delta=0.2)
        for model in ('Xeon', None):
            self.assertEqual((), self.make(model).learned)

    def test_profiles_of_another_cpu_model_are_named(self):
        measured = dataclasses.replace(PROFILES, measurement=Measurement(
            'EPYC', '6.1', 'units', 10.0, ()))
        for model, known in (('EPYC', True), ('Xeon', False), (None, False)):
            self.log.lines.clear()
            found = WorkloadClasses(measured, model, self.store)
            self.assertEqual(known, not found.problem)
            self.assertEqual(known, not self.log.lines)
        self.assertEqual('', self.make('Xeon').problem)

    def test_images_of_a_tenant_are_bounded(self):
        images = [guest(image=f'{n:08x}{IMAGE[8:]}', flavor='small')
                  for n in range(3 * workload_classes.MOST_LEARNED)]
        for one in images:
            self.classes.update([one])
            self.assertIsNotNone(self.classes.class_of(one))
        self.assertEqual(workload_classes.MOST_LEARNED,
                         len(self.classes.learned))
        self.assertIsNone(self.classes.class_of(images[0]))

    @hypothesis.given(fuzzing.changed({
        'cpu_model': 'EPYC', 'classes': [LEARNED], 'entries': [
            ['time', LEARNED, 'quiet', 0.5, 0.01],
            ['space', 'noisy', LEARNED, 0.1, 0.02]]}) | st.dictionaries(
                st.sampled_from(['cpu_model', 'classes', 'entries']),
                fuzzing.values))
    def test_any_saved_state_gives_valid_profiles(self, state):
        self.store.save(workload_classes.STATE, state)
        classes = self.make()
        classes.update([guest(image=IMAGE, flavor='small')])
        self.observe(1.5, 1, classes, victim='quiet', on_cpu=('noisy',),
                     beside=())
        before, after = slowdowns(PROFILES), slowdowns(classes.profiles)
        for key, value in before.items():
            self.assertGreaterEqual(after[key], value)


class DomainTest(unittest.TestCase):
    """Class, image and flavor are read from what Nova writes."""

    def read(self, specs=None, image='', inside=''):
        metadata = fakes.nova_metadata(fakes.MARKED | (specs or {}))
        metadata = metadata.replace(
            '<nova:owner>', f'<nova:image uuid="{image}">{inside}'
            '</nova:image><nova:owner>')
        xml = fakes.domain_xml(fakes.UUIDS[0], 'name', metadata)
        return domain_xml.read_guest(xml, fakes.UUIDS[0])

    def test_class_image_and_flavor_are_read(self):
        found = self.read({'lifecycle:workload_class': 'batch'}, IMAGE)
        self.assertEqual(('batch', IMAGE, 'f'), (
            found.workload_class, found.image, found.flavor))
        self.assertEqual(('', ''), (self.read().workload_class,
                                    self.read().image))

    def test_image_properties_and_metadata_name_no_class(self):
        name = 'lifecycle:workload_class'
        inside = (f'<nova:properties><nova:property name="{name}">quiet'
                  '</nova:property></nova:properties><nova:extraSpecs>'
                  f'<nova:extraSpec name="{name}">quiet</nova:extraSpec>'
                  '</nova:extraSpecs>')
        found = self.read(image=IMAGE, inside=inside)
        self.assertEqual('', found.workload_class)
        found = self.read({name: 'noisy'}, IMAGE, inside)
        self.assertEqual('noisy', found.workload_class)

    def test_wrong_images_and_long_names_do_not_count(self):
        for image in ('..', IMAGE.upper(), IMAGE + 'a'):
            self.assertEqual('', self.read(image=image).image)
        found = self.read({'lifecycle:workload_class': 'a' * 256})
        self.assertEqual('', found.workload_class)


if __name__ == '__main__':
    unittest.main()
