"""Services: what the daemon does next to managing its directories. The one place to add a service.

They show the state of the daemon: the HTTP server, the metrics file, the file for liveness probes, the service manager.
Decides when each begins, ends and follows a reload. An error that makes a start impossible (an address that is taken, a
file that cannot be written, a package that is missing) is one line; after the start it is logged, and the work goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from lockcache.errors import LockcacheError, how_to_install, in_words
from lockcache.sizes import counted, format_size
from lockcache_daemon.keeper import Keeper
from lockcache_daemon.observe import Board, MetricsFile, Report, shown
from lockcache_daemon.run.alive_file import AliveService
from lockcache_daemon.run.systemd import Notifier
from lockcache_daemon.settings import Address, AddressError, Settings, listen

if TYPE_CHECKING:
    from lockcache_daemon.observe import WebServer


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
        WebService(settings, report),
        FilingService(settings, report),
        AliveService(settings, report),
        NotifyingService(report, notifier),
    ]


class ServingError(LockcacheError):
    """A service cannot be started; the message says why, and what to do."""


class WebService:
    """Metrics, health and the status page on ``--metrics`` (a :class:`Service`)."""

    def __init__(self, settings: Settings, report: Report) -> None:
        self._wanted = settings.metrics
        self._report = report
        self._address: Address | None = None
        self._server: WebServer | None = None

    def prepare(self) -> None:
        """Take the address. Raises :class:`AddressError` and :class:`ServingError`."""
        if self._wanted is not None:
            self._server = self._listen(self._wanted)

    def open(self, keepers: Sequence[Keeper]) -> None:
        if self._wanted is not None and self._server is not None:
            self._start(self._server, self._wanted)

    def tick(self) -> None:
        """Do nothing: the server has a thread of its own."""

    def change(self, settings: Settings, keepers: Sequence[Keeper]) -> None:
        """Change to another address. If that cannot be had, the address before it stays in service."""
        wanted = settings.metrics
        if wanted == self._address:
            return
        before = self._server
        try:
            if wanted is not None:
                self._start(self._listen(wanted), wanted)
        except (AddressError, ServingError) as error:
            self._report.not_served(str(error))
            return
        if before is not None:
            before.close()
        if wanted is None:
            self._server, self._address = None, None

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def _listen(self, address: Address) -> WebServer:
        listening = listen(address)
        try:
            from lockcache_daemon.observe import WebServer
        except ModuleNotFoundError as error:
            listening.close()
            raise _missing("--metrics", error) from error
        return WebServer(listening, self._report.board, self._report.not_served, (address.host,))

    def _start(self, server: WebServer, address: Address) -> None:
        self._server, self._address = server, address
        where = Address(*server.address)
        server.start()
        self._report.listening(str(where))


class FilingService:
    """The file of ``--metrics-file`` (a :class:`Service`)."""

    def __init__(self, settings: Settings, report: Report) -> None:
        self._wanted = settings.metrics_file
        self._report = report
        self._file: MetricsFile | None = None

    def prepare(self) -> None:
        """Try the folder. Raises :class:`ServingError`."""
        if self._wanted is not None:
            try_metrics_file(self._wanted, self._report.board)

    def open(self, keepers: Sequence[Keeper]) -> None:
        """Start writing the file. Raises :class:`ServingError`."""
        if self._wanted is not None:
            self._file = _start(self._wanted, self._report)

    def tick(self) -> None:
        """Do nothing: the file has a thread of its own, because its disk may hang."""

    def change(self, settings: Settings, keepers: Sequence[Keeper]) -> None:
        """Change to another file. If that cannot be written, the file before it stays in use."""
        wanted, before = settings.metrics_file, self._file
        if wanted == (before.path if before is not None else None):
            return
        try:
            self._file = None if wanted is None else _start(wanted, self._report)
        except ServingError as error:
            self._report.not_served(str(error))
            return
        if before is not None:
            before.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


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


def _start(path: str, report: Report) -> MetricsFile:
    file = _file(path, report.board, lambda error: report.not_served(str(_unwritable(path, error))))
    try:
        file.start()
    except OSError as error:
        raise _unwritable(path, error) from error
    return file


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
