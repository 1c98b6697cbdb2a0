"""Properties of Nova's request for a server, as node sets have them."""

from collections.abc import Mapping
import typing

#: Interfaces, or "auto" or "none".
Networks = list[dict[str, str]] | str


def as_networks(network: str | None) -> Networks:
    """Return the ``networks`` for which a single ``network`` stands."""
    return (network or 'auto') if network in (None, 'auto', 'none') else [
        {'uuid': str(network)}]


def interfaces(network: str | None, server: Mapping[str, typing.Any]
               ) -> Networks:
    """Return the networks of a node set: its ``networks`` or ``network``."""
    return typing.cast(Networks, server.get('networks')
                       or as_networks(network))


def root_device(server: Mapping[str, typing.Any]
                ) -> Mapping[str, typing.Any] | None:
    """Return the device to boot from, if that is not the image itself."""
    return next((one for one in server.get('block_device_mapping_v2', ())
                 if one.get('boot_index') == 0), None)
