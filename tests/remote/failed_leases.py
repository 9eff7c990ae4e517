# SPDX-License-Identifier: Apache-2.0
"""A check of leases after their holders failed, for servers of each kind."""

from __future__ import annotations

import time
from collections.abc import Callable

from lockcache.remote import LeaseAnswer, Transport

_NAME, _OTHER = "0" * 64, "1" * 64
_HANG_SECONDS = 60


def check_failures(connect: Callable[[], Transport]) -> None:
    """Check that all who wait find a failure, and that it ends as a lease does."""
    one, other = connect(), connect()
    assert one.has_leases
    assert one.try_lease(_NAME, "a", 60.0) is LeaseAnswer.TAKEN
    assert other.try_lease(_NAME, "b", 60.0, has_waited=True) is LeaseAnswer.HELD
    one.release(_NAME, "a", failed_seconds=60.0)
    assert other.try_lease(_NAME, "b", 60.0, has_waited=True) is LeaseAnswer.FAILED
    assert other.try_lease(_NAME, "b", 60.0) is not LeaseAnswer.TAKEN
    assert not one.renew(_NAME, "a", 60.0)
    assert other.try_lease(_OTHER, "b", 60.0, has_waited=True) is LeaseAnswer.TAKEN
    one.release(_OTHER, "a", failed_seconds=60.0)  # not its lease, and so not its failure
    assert other.renew(_OTHER, "b", 60.0)
    other.release(_OTHER, "b", failed_seconds=0.1)
    until = time.monotonic() + _HANG_SECONDS
    while one.try_lease(_OTHER, "c", 0.1, has_waited=True) is not LeaseAnswer.TAKEN:
        assert time.monotonic() < until
        time.sleep(0.01)
