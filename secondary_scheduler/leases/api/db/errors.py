# SPDX-License-Identifier: Apache-2.0

"""Errors of the database of leases."""


class StoreError(Exception):
    """A request to the store cannot be fulfilled."""


class UnknownLease(StoreError):
    """The lease does not exist, or belongs to another project."""


class UnknownQuote(StoreError):
    """The quote does not exist, has expired or belongs to another project."""


class UnknownPlan(StoreError):
    """The action plan is not recorded."""


class Stale(StoreError):
    """The lease has changed since it was read."""


class WrongState(StoreError):
    """The state of the lease does not allow the operation."""


class OtherRequest(StoreError):
    """The token was used for a request with other terms."""


class OverQuota(StoreError):
    """The project would exceed its limit of ``resource``."""

    def __init__(self, resource: str, limit: int, used: int, requested: int
                 ) -> None:
        super().__init__(f'{used} of {limit} {resource} are in use, and '
                         f'{requested} more are requested')
        self.resource = resource
