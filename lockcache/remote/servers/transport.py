"""The calls of a server of entries, their errors, and the URLs that name one.

Decides which client serves which URL, and which settings of a URL are lockcache's own. The clients are extras, loaded
when a server of their kind is first used: ``import lockcache`` loads none.

Not promised by a transport: that a value it returns was ever stored. :mod:`.sealing` decides that.
"""

from __future__ import annotations

import codecs
import contextlib
import enum
import importlib
import importlib.util
import re
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from lockcache.arguments import configured_text
from lockcache.errors import how_to_install

__all__ = [
    "LARGEST_VALUE_BYTES",
    "LeaseAnswer",
    "RemoteError",
    "RemoteUrl",
    "Transport",
    "configured_url",
    "name_in",
    "open_transport",
    "parse_url",
    "reason_of",
    "received_from",
    "require_client",
]

#: Longer values are neither sent nor received. The largest known programs have some 40 MB.
LARGEST_VALUE_BYTES: Final = 64 * 1024 * 1024

#: For how long a server that supports expiry keeps an entry that is not stored again.
_TTL_SECONDS: Final = 30 * 24 * 3600

#: By scheme: the module of the transport, what its client is imported as, and the extra that installs it.
_SCHEMES: Final = {
    "redis": ("redis_server", "redis", "redis"),
    "rediss": ("redis_server", "redis", "redis"),
    "unix": ("redis_server", "redis", "redis"),
    "http": ("http_server", "urllib3", "http"),
    "https": ("http_server", "urllib3", "http"),
    "s3": ("object_store", "obstore", "s3"),
    "gs": ("object_store", "obstore", "s3"),
    "az": ("object_store", "obstore", "s3"),
}


# Of C's struct tcp_info, tcpi_bytes_acked.
_ACKNOWLEDGED: Final = struct.Struct("120xQ")

_MOST_CAUSES: Final = 16

_NAME: Final = re.compile(rb"[0-9a-f]{64}")

_HOW_TO_QUOTE: Final = "in a password / ? # @ [ ] are written as %2F %3F %23 %40 %5B %5D"
# What stands behind the two slashes, where that is not a host.
_PLACES: Final = {"unix": "path", "s3": "bucket", "gs": "bucket", "az": "container"}


class RemoteError(Exception):
    """A call of a server failed. Counted by :class:`lockcache.remote.store.RemoteStore`, and never seen by users."""

    def __init__(
        self,
        words: str,
        *,
        is_refusal: bool = False,
        is_silence: bool = False,
        is_own: bool = False,
        seconds: float = 0.0,
    ) -> None:
        super().__init__(words)
        #: Whether this process is at fault and others may be served: its password, its client library.
        self.is_own = is_own
        #: Whether no answer came in the time that was waited.
        self.is_silence = is_silence
        #: The seconds that the call was waited for.
        self.seconds = seconds
        #: Whether the server answered with a refusal: it is full, or denies access. Then it works otherwise.
        self.is_refusal = is_refusal


def reason_of(error: BaseException) -> str:
    """Returns why a call failed: in the system's words if it was the system, else in those of the client library."""
    cause: BaseException | None = error
    for _ in range(_MOST_CAUSES):  # two exceptions may be each other's cause
        if cause is None:
            break
        if isinstance(cause, OSError) and (words := cause.strerror or str(cause)):
            return words
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return f"{type(error).__name__}: {error}"


def name_in(key: bytes, prefix: str) -> str | None:
    """Returns the name of the entry that a server keeps under ``key``; ``None`` for a key of something else."""
    name = key.removeprefix(prefix.encode())
    return name.decode() if len(name) < len(key) + (not prefix) and _NAME.fullmatch(name) else None


class LeaseAnswer(enum.Enum):
    """A server's answer to who wants a lease."""

    TAKEN = enum.auto()
    HELD = enum.auto()
    #: Its last holder's computation failed a moment ago, and nobody holds it: those who want it need not wait.
    FAILED = enum.auto()
    #: The server keeps none.
    NONE = enum.auto()


class Transport(Protocol):
    """The calls of one server. Names are 64 hex digits. Any thread may make any call; all raise :class:`RemoteError`.

    A call may hang: its waiter decides for how long it waits, and then calls :meth:`abort`.
    """

    @property
    def has_leases(self) -> bool:
        """Whether :meth:`try_lease` excludes others. May ask the server."""

    def get(self, name: str) -> bytes | None:
        """Returns the value under ``name``, of at most :data:`LARGEST_VALUE_BYTES`; ``None`` if there is none."""

    def get_many(self, names: Iterable[str]) -> dict[str, bytes]:
        """Returns the values that the server has, in as few round trips as it allows."""

    def put(self, name: str, value: bytes) -> None:
        """Store a value, in place of what is there."""

    def remove(self, name: str) -> None:
        """Remove a value, if there is one."""

    def names(self) -> Iterator[str]:
        """Yields the names of all values below the prefix. Those that come or go meanwhile may be among them or not."""

    def try_lease(self, name: str, token: str, seconds: float, *, has_waited: bool = False) -> LeaseAnswer:
        """Take the lease of ``name`` for so long, unless another token holds it or its holder failed.

        Without ``has_waited`` a failure may be answered as held: who waited does not need more requests for it.
        """

    def renew(self, name: str, token: str, seconds: float) -> bool:
        """Renew the lease taken with ``token``, for so long from now. Returns whether it was still that token's."""

    def release(self, name: str, token: str, failed_seconds: float = 0) -> None:
        """Give the lease back, if it is still that token's; or leave it as that of a failure for so long."""

    def probe(self) -> None:
        """Make the shortest call that only a working server answers."""

    def abort(self) -> None:
        """Close what is open, so that calls that hang end. The transport may be used again."""

    def received_bytes(self) -> int:
        """Returns how much the server's host has received on connections that are open; 0 where that is not known."""


def received_from(sockets: Iterable[socket.socket]) -> int:
    """Returns the bytes that other hosts have acknowledged, as the kernel counts them for TCP."""
    count = 0
    for each in sockets:
        # Closed meanwhile, not of TCP, or of a library that wraps sockets.
        with contextlib.suppress(OSError, struct.error, AttributeError):
            count += _ACKNOWLEDGED.unpack(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size))[0]
    return count


class RemoteUrl(NamedTuple):
    """A server's URL, taken apart."""

    scheme: str
    #: For the client: without lockcache's own settings.
    url: str
    #: Before each name.
    prefix: str
    ttl_seconds: int
    #: For people: without user, password and settings.
    shown: str

    @property
    def may_lease(self) -> bool:
        """Whether servers of this kind can keep leases."""
        return not self.scheme.startswith("http")


def _refuse_without_place(scheme: str, place: str) -> None:
    if not place:
        wanted = _PLACES.get(scheme, "host")
        raise ValueError(f"url does not name a {wanted}; accepted: {scheme}://{wanted.upper()}")


def _refuse_slips(settings: Iterable[str], own: Iterable[str], shown: str) -> None:
    for name in settings:
        import difflib  # 3 ms, where there are settings

        if close := difflib.get_close_matches(name, own, 1):
            raise ValueError(f"{shown}: there is no setting {name!r}; did you mean {close[0]}?")


def parse_url(url: object) -> RemoteUrl:
    """Take a URL apart. Raises :class:`TypeError`, or :class:`ValueError` that shows nothing of a password."""
    if not isinstance(url, str):
        raise TypeError(f"url must be a str, got {type(url).__name__}")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        where = f"[{host}]" if ":" in host else host
        where += "" if parts.port is None else f":{parts.port}"
    except ValueError:
        # Without the original message: it quotes what is in the host's place, such as half of a password.
        raise ValueError(f"url is not a URL of a host and a port; {_HOW_TO_QUOTE}") from None
    shown = f"{parts.scheme}://{where}{parts.path}"
    if parts.scheme not in _SCHEMES:
        # The parts before an @ and after a ? may be a password.
        given = f"{parts.scheme}://" if "@" in url or "?" in url else url
        raise ValueError(f"{given[:80]!r} is not a URL that begins with {'://, '.join(_SCHEMES)}://")
    if _is_torn(parts):
        raise ValueError(f"url has an @ behind its host; {_HOW_TO_QUOTE}")
    _refuse_without_place(parts.scheme, parts.path if parts.scheme == "unix" else host)
    own = {"prefix": "lockcache:", "ttl": str(_TTL_SECONDS)}
    rest = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in own:
            own[name] = value
        else:
            rest.append((name, value))
    _refuse_slips([name for name, _ in rest], own, shown)
    if not own["prefix"].isprintable() or not own["prefix"].isascii() or len(own["prefix"]) > 200:
        raise ValueError(f"{shown}: prefix must be printable ASCII of at most 200 characters")
    if not own["ttl"].isascii() or not own["ttl"].isdigit() or not 0 < int(own["ttl"][:12]) < 2**31:
        raise ValueError(f"{shown}: ttl must be a number of seconds, from 1 to 2147483647")
    # Not urlunsplit, which takes the slashes from unix:///path.
    bare = url.partition("?")[0] + (f"?{urlencode(rest)}" if rest else "")
    return RemoteUrl(parts.scheme, bare, own["prefix"], int(own["ttl"]), unquote(shown))


def _is_torn(parts: SplitResult) -> bool:
    """Returns whether a password with an unescaped character may have spilled into host and path."""
    if parts.scheme in ("s3", "gs", "az") or (parts.scheme == "unix" and not parts.netloc):
        return False  # without a password, and an @ may be in a name
    return "@" in f"{parts.path}{parts.query.partition('=')[0]}{parts.fragment}"


def configured_url() -> RemoteUrl | None:
    """Returns the server in ``$LOCKCACHE_REMOTE``. Raises :class:`ValueError` naming the variable."""
    text = configured_text("LOCKCACHE_REMOTE")
    try:
        return parse_url(text) if text else None
    except ValueError as error:
        raise ValueError(f"LOCKCACHE_REMOTE: {error}") from None


def require_client(url: RemoteUrl) -> None:
    """Raise :class:`ModuleNotFoundError`, which says what to install, where the client of this URL is missing."""
    _, client, extra = _SCHEMES[url.scheme]
    if importlib.util.find_spec(client) is None:
        raise ModuleNotFoundError(f"{url.scheme}:// needs the package {client}: {how_to_install(extra)}", name=client)


def open_transport(url: RemoteUrl, timeout_seconds: float) -> Transport:
    """Returns the transport of this URL, which connects at its first use. ``timeout_seconds`` is for each read.

    Raises :class:`RemoteError` where its client cannot be loaded, or refuses the URL. Requires: no fork meanwhile
    (:data:`lockcache.fork.unforked`).
    """
    # The standard library imports it for a host's name, in the thread that connects: a child that is forked meanwhile
    # would wait for that thread's lock.
    codecs.lookup("idna")
    module, _, _ = _SCHEMES[url.scheme]
    try:
        connect: Callable[[RemoteUrl, float], Transport] = importlib.import_module(f"{__package__}.{module}").connect
        return connect(url, timeout_seconds)
    except (RemoteError, KeyboardInterrupt, SystemExit):
        raise
    # Of a client library, its import, or an interpreter that is ending. A panic in Rust is not an Exception.
    except BaseException as error:  # noqa: BLE001
        raise RemoteError(f"its client cannot be used: {error}") from None
