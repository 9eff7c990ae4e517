"""The address that metrics are served on: how it is written, and taking it.

Keeps the daemon off the network unless it is told to be on it: without a host it is loopback. Keeps mistakes to one
line: an address that cannot be understood, a name that leads nowhere, a port in use.
"""

from __future__ import annotations

import re
import socket
from typing import Final, NamedTuple

from lockcache.errors import LockcacheError

__all__ = ["Address", "AddressError", "listen", "parse_address"]

_ACCEPTED: Final = "accepted: PORT, HOST:PORT or [IPV6]:PORT, such as 127.0.0.1:9477 or [::1]:9477"
_FORM: Final = re.compile(r"(?:\[([0-9a-fA-F:.%\w]+)\]:|([^\[\]:/\s]*):)?([0-9]{1,5})", re.ASCII)
_LOOPBACK: Final = "127.0.0.1"
# Sized for what may come while all are being served.
_BACKLOG: Final = 64


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressError(LockcacheError):
    """The address cannot be had; the message says which and why."""


def parse_address(text: str) -> Address:
    """An address as people write it. Port 0: any that is free. Raises :class:`ValueError` naming ``text``."""
    match = _FORM.fullmatch(text.strip())
    if match is None or int(match[3]) > 65535:
        raise ValueError(f"{text!r} is not an address; {_ACCEPTED}")
    return Address(match[1] or match[2] or _LOOPBACK, int(match[3]))


def listen(address: Address) -> socket.socket:
    """A socket that listens there. Raises :class:`AddressError`."""
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        return socket.create_server(where, family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label of a name that is too long
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise AddressError(f"cannot serve metrics on {address}: {reason}") from error
