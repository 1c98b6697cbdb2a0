# SPDX-License-Identifier: Apache-2.0

"""Images that hosts of leases fetch before servers boot from them."""

import dataclasses
import unittest

from secondary_scheduler.leases.engine.values import LeaseOperation
from tests.unit.leases.api.services import NOW
from tests.unit.leases.engine import fakes

FETCH_S = 20
UUID = '6f2e5c1a-0b7d-4c3e-9a48-5d1f7b3e2c60'


class ImagesTest(unittest.TestCase):

    def world(self, fetch_s=FETCH_S, **nova):
        world = fakes.World(self, dataclasses.replace(
            fakes.OPTIONS, fetch_s=fetch_s), **nova)
        world.nova.fetch = FETCH_S
        return world

    def asked(self, world):
        """Return the requests for images: time, host and image."""
        return [(time - NOW, one.host, one.build.image)
                for time, one in world.nova.ordered
                if one.kind is LeaseOperation.CACHE_IMAGE]

    def booted(self, world, lease):
        """Return the times at which servers of a lease began to boot."""
        keys = {one.uuid for one in world.nova.of(lease).values()}
        return [time - NOW - 6 for time, key, status in world.nova.story
                if key in keys and status == 'ACTIVE']

    def test_image_of_a_reservation_is_fetched_ahead_on_its_hosts(self):
        world = self.world()
        lease = world.ask(3, 'large', duration=30, start=NOW + 140,
                          image='debian')
        world.until(150, world.restart)
        times, hosts, images = zip(*self.asked(world), strict=True)
        self.assertEqual(['h1', 'h2', 'h3'], sorted(hosts))
        self.assertEqual({'debian'}, set(images))
        # One after another, and all early enough.
        self.assertGreaterEqual(times[1], times[0] + FETCH_S)
        self.assertGreaterEqual(times[2], times[1] + FETCH_S)
        self.assertLessEqual(times[2], 140 - 10 - FETCH_S)
        self.assertEqual([], world.nova.spoilt)
        self.assertIn('running', world.kinds(lease))
        self.assertNotIn('late', world.kinds(lease))

    def test_reservation_is_late_if_its_image_is_not_fetched_ahead(self):
        world = self.world(fetch_s=0)
        lease = world.ask(3, 'large', duration=30, start=NOW + 140,
                          image='debian')
        world.until(160)
        self.assertEqual([], self.asked(world))
        self.assertIn('late', world.kinds(lease))

    def test_image_of_a_lease_that_begins_soon_is_fetched_by_the_boot(self):
        world = self.world()
        soon = world.ask(1, duration=60, image='debian')
        world.ask(1, duration=60, start=NOW + 40, image='other')
        world.until(40)
        self.assertEqual([], self.asked(world))
        self.assertEqual(['ACTIVE'], world.nova.statuses(soon))

    def test_image_that_a_host_has_is_not_fetched(self):
        world = self.world(hosts=('h1',))
        world.ask(1, duration=60, image='debian')
        world.ask(1, duration=60, start=NOW + 200, image='debian')
        later = world.ask(1, duration=60, start=NOW + 240, image='debian')
        world.until(260, world.restart)
        self.assertEqual([], self.asked(world))
        self.assertEqual(['ACTIVE'], world.nova.statuses(later))

    def test_boot_from_an_image_waits_until_it_is_fetched(self):
        for image, at_once in (('debian', False), (UUID, False),
                               ('other', True), (None, True)):
            with self.subTest(image):
                world = self.world(hosts=('h1',))
                world.ask(1, duration=60, start=NOW + 200, image='debian')
                world.until(6)
                ((asked, *_),) = self.asked(world)
                world.nova.there['h1', image] = world.nova.there.get(
                    ('h1', image), 0)
                second = world.ask(1, duration=60, image=image)
                world.until(60)
                self.assertEqual([], world.nova.spoilt)
                (booted,) = self.booted(world, second)
                if at_once:
                    self.assertLess(booted, asked + FETCH_S / 2)
                else:
                    self.assertGreaterEqual(booted, asked + FETCH_S)
                    self.assertLess(booted, asked + FETCH_S + 6)

    def test_refused_fetch_does_not_delay_the_lease(self):
        world = self.world()
        world.nova.keeps_images = False
        world.nova.there = dict.fromkeys(
            ((host, 'debian') for host in world.nova.hosts), 0)
        lease = world.ask(3, 'large', duration=60, start=NOW + 140,
                          image='debian')
        world.until(150)
        # It is retried, but not with each pass.
        self.assertTrue(3 < len(self.asked(world)) < 30)
        self.assertIn('running', world.kinds(lease))
        self.assertNotIn('late', world.kinds(lease))

    def test_hosts_with_a_copy_of_the_image_are_preferred(self):
        world = self.world()
        world.nova.asked['h2', 'debian'] = NOW - 100.0
        lease, other = (world.ask(1, duration=60, image=image)
                        for image in ('debian', 'other'))
        world.until(40)
        self.assertEqual(['h2', 'h1'], [
            world.nova.of(one)[0].host for one in (lease, other)])
        # So are hosts on which a server has booted from the image.
        world.until(130)
        world.nova.asked.clear()
        world.restart()
        again = world.ask(1, duration=60, image='debian')
        world.until(140)
        self.assertEqual('h2', world.nova.of(again)[0].host)


if __name__ == '__main__':
    unittest.main()
