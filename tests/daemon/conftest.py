"""What tests of the daemon may ask for: keepers that are closed at the end, and signals that count."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemon.keeping import Kept


@pytest.fixture(autouse=True, scope="session")
def hangup_counts() -> Iterator[None]:
    """A test run started by nohup ignores SIGHUP, and so would the daemons that it starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def keep() -> Iterator[Callable[..., Kept]]:
    """Opens keepers: ``keep(root)``, or ``keep(root, layout)``."""
    made: list[Kept] = []

    def start(root: Path, layout: str = "lockcache") -> Kept:
        made.append(Kept(root, layout))
        made[-1].keeper.open()
        return made[-1]

    yield start
    for kept in made:
        kept.keeper.close()
        with kept.stop:
            pass  # closes its sockets
