"""What the daemon does beside keeping its directories, as its settings say. The one place to add such things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lockcache_daemon.keeper import Keeper
from lockcache_daemon.notify import Notifier
from lockcache_daemon.observing import FilingService, NotifyingService, WebService
from lockcache_daemon.report import Report
from lockcache_daemon.settings import Settings

__all__ = ["Service", "services_for"]


class Service(Protocol):
    """Runs from the opening of the directories to the end. For the main thread, like all of the daemon."""

    def open(self, keepers: Sequence[Keeper]) -> None:
        """The directories are open. Raises what makes a start impossible (a port that is taken)."""

    def tick(self) -> None:
        """Every directory had its tick. Raises nothing."""

    def change(self, settings: Settings, keepers: Sequence[Keeper]) -> None:
        """Other settings are in force, and maybe other directories. Raises nothing."""

    def close(self) -> None:
        """The daemon ends. Raises nothing."""


def services_for(settings: Settings, report: Report, notifier: Notifier) -> list[Service]:
    """In the order in which they have their turn; closed in reverse."""
    # The service manager last: it is told that all is ready when all is.
    return [WebService(settings, report), FilingService(settings, report), NotifyingService(report, notifier)]
