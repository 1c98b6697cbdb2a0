# SPDX-License-Identifier: Apache-2.0

"""The smallest form that each benchmark has: ``--quick``."""

import argparse
import collections.abc
import typing

HELP = ('the smallest form, which takes seconds: shows that the benchmark '
        'works, not how fast anything is')


def add_quick(parser: argparse.ArgumentParser, **smallest: typing.Any
              ) -> None:
    """Add ``--quick``, which sets the options that are not given.

    :param smallest: values by destination, which the parser knows already.
    """
    defaults = {name: parser.get_default(name) for name in smallest}

    class Quick(argparse.Action):
        def __call__(self, parser: argparse.ArgumentParser,
                     namespace: argparse.Namespace,
                     values: str | collections.abc.Sequence[typing.Any] | None,
                     option_string: str | None = None) -> None:
            namespace.quick = True
            for name, value in smallest.items():
                if getattr(namespace, name) == defaults[name]:
                    setattr(namespace, name, value)

    parser.add_argument('--quick', action=Quick, nargs=0, default=False,
                        help=HELP)
