"""Why the database of leases refuses something."""


class StoreError(Exception):
    """Something that was asked of the store cannot be."""


class UnknownLease(StoreError):
    """There is no such lease, or it is another project's."""


class UnknownQuote(StoreError):
    """There is no such quote, or no more, or it is another project's."""


class Stale(StoreError):
    """The lease has changed since it was read."""


class WrongState(StoreError):
    """The lease is in a state in which that cannot be done."""


class OtherRequest(StoreError):
    """The token was used for a request that asked for something else."""


class OverQuota(StoreError):
    """The project would have more than it may; ``what`` of it."""

    def __init__(self, what: str, limit: int, used: int, asked: int) -> None:
        super().__init__(f'{used} of {limit} {what} are in use, and {asked} '
                         'more are asked for')
        self.what = what
