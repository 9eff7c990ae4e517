"""Services: what the daemon does next to managing its directories, as its settings say. The one place to add one.

They let others see how the daemon is: the HTTP server, the metrics file, the service manager. Decides when each begins,
ends and follows a reload. What makes a start impossible (an address that is taken, a file that cannot be written, a
package that is missing) is one line; after the start it is logged, and the work goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from lockcache.errors import LockcacheError, how_to_install, in_words
from lockcache.sizes import format_size
from lockcache_daemon.keeper import Keeper
from lockcache_daemon.observe import Board, MetricsFile, Report, shown
from lockcache_daemon.run.alive import AliveService
from lockcache_daemon.run.systemd import Notifier
from lockcache_daemon.settings import Address, AddressError, Settings, listen

if TYPE_CHECKING:
    from lockcache_daemon.observe import WebServer


class Service(Protocol):
    """Runs from the opening of the directories to the end. For the main thread, like all of the daemon."""

    def prepare(self) -> None:
        """No directory is open yet. Raises what makes a start impossible (a port that is taken)."""

    def open(self, keepers: Sequence[Keeper]) -> None:
        """The directories are open. Raises what :meth:`prepare` does, where things have changed since."""

    def tick(self) -> None:
        """Every directory had its tick. Raises nothing."""

    def change(self, settings: Settings, keepers: Sequence[Keeper]) -> None:
        """Other settings are in force, and maybe other directories. Raises nothing."""

    def close(self) -> None:
        """The daemon ends. Raises nothing."""


def services_for(settings: Settings, report: Report, notifier: Notifier) -> list[Service]:
    """In the order in which they have their turn; closed in reverse."""
    # The service manager last: it is notified that all is ready when all is.
    return [
        WebService(settings, report),
        FilingService(settings, report),
        AliveService(settings, report),
        NotifyingService(report, notifier),
    ]


class ServingError(LockcacheError):
    """What was asked for cannot be served; the message says why, and what to do."""


class WebService:
    """Metrics, health and the status page on ``--metrics``. As :class:`.services.Service`."""

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
        """Nothing: it has a thread of its own."""

    def change(self, settings: Settings, keepers: Sequence[Keeper]) -> None:
        """An address that cannot be had leaves the one before it in service."""
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
    """The file of ``--metrics-file``. As :class:`.services.Service`."""

    def __init__(self, settings: Settings, report: Report) -> None:
        self._wanted = settings.metrics_file
        self._report = report
        self._file: MetricsFile | None = None

    def prepare(self) -> None:
        """Try the folder. Raises :class:`ServingError`."""
        if self._wanted is not None:
            try_metrics_file(self._wanted, self._report.board)

    def open(self, keepers: Sequence[Keeper]) -> None:
        """Raises :class:`ServingError`."""
        if self._wanted is not None:
            self._file = _start(self._wanted, self._report)

    def tick(self) -> None:
        """Nothing: it has a thread of its own, since its disk may hang."""

    def change(self, settings: Settings, keepers: Sequence[Keeper]) -> None:
        """A file that cannot be written leaves the one before it in use."""
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
    """Notifications for the service manager. As :class:`.services.Service`."""

    def __init__(self, report: Report, notifier: Notifier) -> None:
        self._board = report.board
        self._notifier = notifier
        self._is_ready = False

    def prepare(self) -> None:
        """Nothing: a service manager that does not listen keeps nobody from starting."""

    def open(self, keepers: Sequence[Keeper]) -> None:
        self._notifier.ready(_in_a_line(self._board))
        self._is_ready = True

    def tick(self) -> None:
        if self._notifier.is_reloading:
            self._notifier.ready(_in_a_line(self._board))
        if self._notifier.is_heard:
            self._notifier.status(_in_a_line(self._board))

    def change(self, settings: Settings, keepers: Sequence[Keeper]) -> None:
        """Nothing: the tick that follows says so, also after settings that were refused."""

    def close(self) -> None:
        self._board.is_stopping = True
        if self._is_ready:  # what never started does not stop
            self._notifier.stopping("stopping")


def try_metrics_file(path: str, board: Board) -> None:
    """See that the file of ``--metrics-file`` can be written, and leave it. Raises :class:`ServingError`."""
    try:
        _file(path, board, lambda error: None).stage()
    except OSError as error:
        raise _unwritable(path, error) from error


def write_metrics_once(path: str, board: Board) -> None:
    """The file of ``--metrics-file`` after one pass. Raises :class:`ServingError`."""
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
    line = f"{shown(kept)}: {format_size(held)} in {entries} entries"
    return f"{line}; {problems[0]}" if problems else line
