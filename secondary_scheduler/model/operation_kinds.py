# SPDX-License-Identifier: Apache-2.0

"""Kinds of operations on instances."""

import enum


class OperationKind(enum.StrEnum):
    """Kind of operation on an instance (Boettger 2012, section 4.3.3).

    A boot creates a server, and a delete removes it; only leases have these
    two.  The others change a server that exists.
    """

    MIGRATE = 'migrate'
    SUSPEND = 'suspend'
    RESUME = 'resume'
    STOP = 'stop'
    START = 'start'
    SHELVE = 'shelve'
    UNSHELVE = 'unshelve'
    BOOT = 'boot'
    DELETE = 'delete'
