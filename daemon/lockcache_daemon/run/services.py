# SPDX-License-Identifier: Apache-2.0
"""Services: what the daemon does next to managing its directories. The one place to add a service.

They show the state of the daemon: the HTTP server, the metrics file, the file for liveness probes, the service manager.
Decides when each begins, ends and follows a reload. An error that makes a start impossible (an address that is taken, a
file that cannot be written, a package that is missing) is one line; after the start it is logged, and the work goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from lockcache.errors import LockcacheError, how_to_install, in_words
from lockcache.sizes import counted, format_size
from lockcache_daemon.keeper import Keeper
from lockcache_daemon.observe import Board, MetricsFile, Report, shown
from lockcache_daemon.run.alive_file import AliveFile
from lockcache_daemon.run.systemd import Notifier
from lockcache_daemon.settings import Address, AddressError, Settings, listen

Wanted = TypeVar("Wanted")


class Service(Protocol):
    """A service that runs from the opening of the directories to the end. For the main thread."""

    def prepare(self) -> None:
        """Prepare, before a directory is opened. Raises the errors that make a start impossible."""

    def open(self, keepers: Sequence[Keeper]) -> None:
        """Begin, after the directories were opened. Raises the errors of :meth:`prepare`, if things changed since."""

    def tick(self) -> None:
        """Do what is due, after every directory had its tick. Raises nothing."""

    def change(self, settings: Settings, keepers: Sequence[Keeper]) -> None:
        """Follow other settings, and maybe other directories. Raises nothing."""

    def close(self) -> None:
        """End, when the daemon ends. Raises nothing."""


def services_for(settings: Settings, report: Report, notifier: Notifier) -> list[Service]:
    """Returns the services in the order of their ticks; they are closed in reverse."""
    # The service manager last: it is notified when all others are ready.
    return [
        FollowingService(lambda each: each.metrics, _web, settings, report),
        FollowingService(lambda each: each.metrics_file, _metrics_file, settings, report),
        FollowingService(lambda each: each.alive_file, _alive_file, settings, report),
        NotifyingService(report, notifier),
    ]


class ServingError(LockcacheError):
    """A service cannot be started; the message says why, and what to do."""


class Running(NamedTuple):
    """A server, or a writer of a file, that is made and not begun. Making and beginning may raise why they cannot."""

    start: Callable[[], object]
    close: Callable[[], object]


class FollowingService(Generic[Wanted]):
    """A service that follows one setting (a :class:`Service`): ``None`` ends it, and another value makes another."""

    def __init__(
        self,
        of: Callable[[Settings], Wanted | None],
        make: Callable[[Wanted, Report], Running],
        settings: Settings,
        report: Report,
    ) -> None:
        self._of = of
        self._make = make
        self._wanted = of(settings)
        self._report = report
        self._running: Running | None = None

    def prepare(self) -> None:
        if self._wanted is not None:
            self._running = self._make(self._wanted, self._report)

    def open(self, keepers: Sequence[Keeper]) -> None:
        if self._running is not None:
            self._running.start()

    def tick(self) -> None:
        """Do nothing: each has a thread of its own (a disk may hang), or goes by the progress of the work."""

    def change(self, settings: Settings, keepers: Sequence[Keeper]) -> None:
        """Change to another address or file. If that cannot be had, the one before it stays in service."""
        wanted, following = self._of(settings), None
        if wanted == self._wanted:
            return
        try:
            if wanted is not None:
                following = self._make(wanted, self._report)
                following.start()
        except (AddressError, LockcacheError) as error:
            self._report.not_served(str(error))
            return
        self.close()
        self._wanted, self._running = wanted, following

    def close(self) -> None:
        if self._running is not None:
            self._running.close()


class NotifyingService:
    """Notifications for the service manager (a :class:`Service`)."""

    def __init__(self, report: Report, notifier: Notifier) -> None:
        self._board = report.board
        self._notifier = notifier
        self._is_ready = False

    def prepare(self) -> None:
        """Do nothing: the daemon starts also if the service manager does not listen."""

    def open(self, keepers: Sequence[Keeper]) -> None:
        self._notifier.ready(_in_a_line(self._board))
        self._is_ready = True

    def tick(self) -> None:
        if self._notifier.is_reloading:
            self._notifier.ready(_in_a_line(self._board))
        if self._notifier.is_heard:
            self._notifier.status(_in_a_line(self._board))

    def change(self, settings: Settings, keepers: Sequence[Keeper]) -> None:
        """Do nothing: the tick that follows notifies, also after settings that were refused."""

    def close(self) -> None:
        self._board.is_stopping = True
        if self._is_ready:  # a daemon that never was ready does not stop
            self._notifier.stopping("stopping")


def try_metrics_file(path: str, board: Board) -> None:
    """Check that the file of ``--metrics-file`` can be written, and leave it as it is. Raises :class:`ServingError`."""
    try:
        _file(path, board, lambda error: None).stage()
    except OSError as error:
        raise _unwritable(path, error) from error


def write_metrics_once(path: str, board: Board) -> None:
    """Write the file of ``--metrics-file`` after one pass. Raises :class:`ServingError`."""
    board.is_stopping = True
    try:
        _file(path, board, lambda error: None).write()
    except OSError as error:
        raise _unwritable(path, error) from error


def _web(address: Address, report: Report) -> Running:
    """Returns what serves metrics, health and the status page; the address is taken from now on."""
    listening = listen(address)
    try:
        from lockcache_daemon.observe import WebServer
    except ModuleNotFoundError as error:
        listening.close()
        raise _missing("--metrics", error) from error
    server = WebServer(listening, report.board, report.not_served, (address.host,))

    def start() -> None:
        where = Address(*server.address)
        server.start()
        report.listening(str(where))

    return Running(start, server.close)


def _metrics_file(path: str, report: Report) -> Running:
    """Returns what writes the file of ``--metrics-file``; it could be written a moment ago."""
    try_metrics_file(path, report.board)
    file = _file(path, report.board, lambda error: report.not_served(str(_unwritable(path, error))))

    def start() -> None:
        try:
            file.start()
        except OSError as error:
            raise _unwritable(path, error) from error

    return Running(start, file.close)


def _alive_file(path: str, report: Report) -> Running:
    file = AliveFile(path, report.board)
    return Running(file.start, file.close)


def _file(path: str, board: Board, note: Callable[[OSError], object]) -> MetricsFile:
    try:
        from lockcache_daemon.observe import Metrics
    except ModuleNotFoundError as error:
        raise _missing("--metrics-file", error) from error
    return MetricsFile(path, Metrics(board).text, note)


def _missing(flag: str, error: ModuleNotFoundError) -> ServingError:
    return ServingError(f"{flag} needs {error.name}: {how_to_install('daemon')}")


def _unwritable(path: str, error: OSError) -> ServingError:
    return ServingError(f"cannot write the metrics file {shown(path)}: {error.strerror or in_words(error)}")


def _in_a_line(board: Board) -> str:
    views, problems = board.directories, board.problems()
    held, entries = sum(view.bytes for view in views), sum(view.entries for view in views)
    kept = views[0].root if len(views) == 1 else f"{len(views)} directories"
    line = f"{shown(kept)}: {format_size(held)} in {counted(entries, 'entry')}"
    return f"{line}; {problems[0]}" if problems else line
