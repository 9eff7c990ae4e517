# SPDX-License-Identifier: Apache-2.0
"""Values of settings: parses each kind from the text that people write. Pure, but for listening on an address.

Keeps one promise for flags, variables and files alike: the same text means the same everywhere, and text that is not
understood is a :class:`ValueError` that names it and says what is accepted. Keeps the daemon off the network unless a
setting puts it there: an address without a host is loopback. An address that is malformed, has a name that leads
nowhere, or a port in use, is an error of one line.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from lockcache.arguments import coerce_group
from lockcache.default_directory import expand_home, why_homeless
from lockcache.errors import LockcacheError
from lockcache.filestream.disk import resolve_sharing
from lockcache.sizes import SIZES_IN_WORDS, format_size, parse_count, parse_duration, parse_share, parse_size

_YES: Final = ("true", "yes", "on", "1")
_NO: Final = ("false", "no", "off", "0")

_ACCEPTED: Final = "accepted: PORT, HOST:PORT or [IPV6]:PORT, such as 127.0.0.1:9477 or [::1]:9477"
_FORM: Final = re.compile(r"(?:\[([0-9a-fA-F:.%\w]+)\]:|([^\[\]:/\s]*):)?([0-9]{1,5})", re.ASCII)
_NAMESPACE: Final = re.compile(r"[\w.-]{1,80}", re.ASCII)
_NAMESPACES_IN_WORDS: Final = 'NAME=SIZE, such as triton=2G,jax=500M; in a file a table, { triton = "2G" }'
_LOOPBACK: Final = "127.0.0.1"
# Sized for the connections that may come while all places are taken.
_BACKLOG: Final = 64


#: Makes the value of a setting of what was written for it. Raises :class:`ValueError`.
Parser: TypeAlias = Callable[[object], Any]


@dataclass(frozen=True)
class Setting:
    """How a field of the settings is read and shown; its key is the variable's and, with dashes, the flag's name."""

    parse: Parser
    metavar: str
    help: str
    #: As people write it; ``None``: not set.
    default: str | None = None
    #: Where the name of the field cannot be the key.
    key: str | None = None


def setting(
    parse: Parser, metavar: str, text: str, default: str | None = None, key: str | None = None
) -> dict[str, Setting]:
    """Returns a :class:`Setting` as the metadata of a field."""
    return {"setting": Setting(parse, metavar, text, default, key)}


@dataclass(frozen=True)
class Free:
    """Free space to keep on a file system: a share of its bytes and of its inodes, or a number of bytes."""

    share: float | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        return format_size(self.bytes or 0) if self.share is None else f"{100 * self.share:g}%"


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressError(LockcacheError):
    """The daemon cannot listen on the address; the message says which address, and why."""


def parse_address(text: str) -> Address:
    """Parse an address as people write it. Port 0: any free port. Raises :class:`ValueError` naming ``text``."""
    match = _FORM.fullmatch(text.strip())
    if match is None or int(match[3]) > 65535:
        raise ValueError(f"{text!r} is not an address; {_ACCEPTED}")
    return Address(match[1] or match[2] or _LOOPBACK, int(match[3]))


def listen(address: Address) -> socket.socket:
    """Returns a socket that listens on ``address``. Raises :class:`AddressError`."""
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        return socket.create_server(where, family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label of a host name that is too long
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise AddressError(f"cannot serve metrics on {address}: {reason}") from error


def _parse_interval(text: str) -> float:
    seconds = parse_duration(text)
    if not 0.01 <= seconds <= 3600:
        raise ValueError(f"{text!r} is out of range; accepted: 10ms to 1h, such as 0.5s")
    return seconds


def _parse_free(text: str) -> Free:
    if re.fullmatch(r"[1-9][0-9]?", text.strip(), re.ASCII):
        raise ValueError(f"{text!r} has no unit: write {text.strip()}% or {text.strip()}G")
    try:
        if not text.strip().endswith("%"):
            return Free(bytes=parse_size(text))
        share = parse_share(text)
        if share < 1:
            return Free(share=share)
    except ValueError:
        pass
    raise ValueError(
        f"{text!r} is not an amount of free space; accepted: a percentage of the file system from 1% to 99%, such as 5%"
        f", or a size: {SIZES_IN_WORDS}"
    )


def _parse_metrics_path(text: str) -> str:
    path = _absolute(text)
    if "\0" in text or not text.endswith(".prom") or os.path.basename(path) == ".prom":
        raise ValueError(f"{text!r} would not be read; accepted: a path that ends in .prom, as the node exporter wants")
    return path


def _parse_path(text: str) -> str:
    if not text.strip() or "\0" in text or text.endswith("/"):
        raise ValueError(f"{text!r} is not a file; accepted: a path, such as /run/lockcache/alive")
    return _absolute(text)


def _absolute(text: str) -> str:
    path = expand_home(text)
    if not path:
        raise ValueError(f"{text!r}: {why_homeless(text)}; accepted: an absolute path")
    return path


def _parse_rate(text: str) -> int:
    if text.strip().lower() in ("0", "off"):
        return 0
    try:
        return parse_size(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a rate; accepted: bytes per second, such as {SIZES_IN_WORDS}; 0 or off for none"
        ) from None


def _parse_group(text: str) -> bool | str:
    group = False if text == "0" else coerce_group(text)
    resolve_sharing(group)  # an unknown group is better reported now
    return group


def _parse_namespaces(given: object) -> tuple[tuple[str, int], ...]:
    """Parse the sizes of namespaces from a table, or from ``triton=2G,jax=500M``."""
    if isinstance(given, Mapping):
        pairs = [(str(name), size) for name, size in given.items()]
    else:
        if not isinstance(given, str) or any("=" not in each for each in given.split(",")):
            raise ValueError(f"{given!r} are not sizes of namespaces; accepted: {_NAMESPACES_IN_WORDS}")
        pairs = [(name.strip(), size) for name, _, size in (each.partition("=") for each in given.split(","))]
    names = [name for name, _ in pairs]
    for name in names:
        if _NAMESPACE.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not the name of a namespace; accepted: {_NAMESPACES_IN_WORDS}")
        if names.count(name) > 1:
            raise ValueError(f"the namespace {name!r} has two sizes")
    return tuple((name, Size(size)) for name, size in pairs)


def _parse_switch(text: str) -> bool:
    if text.strip().lower() in (*_YES, *_NO):
        return text.strip().lower() in _YES
    raise ValueError(f"{text!r} is neither yes nor no; accepted: true, yes, on, 1, false, no, off, 0")


def Choice(*accepted: str, meanings: Mapping[str, str] | None = None) -> Parser:  # noqa: N802 (reads as a kind of value)
    """Returns a parser that accepts these words; ``meanings``: what some of them are called today."""

    def parse(text: str) -> str:
        if text not in accepted:
            raise ValueError(f"{text!r} is not known; accepted: {', '.join(accepted)}")
        return (meanings or {}).get(text, text)

    return _parsed_by(parse)


def _parsed_by(parse: Callable[[str], Any], *also: type) -> Parser:
    """Returns a parser of text, and of values of a file that mean the same as their text: by default bool and numbers.

    ``parse`` says best what is accepted instead of a number; a date or an array it could take for a name.
    """
    accepted = (str, *(also or (bool, int, float)))

    def convert(value: object) -> Any:
        if type(value) not in accepted:
            raise ValueError(f"{_shown(value)} is {_kind_of(value)}; accepted: text in quotes")
        return parse(str(value).lower() if isinstance(value, bool) else str(value))

    return convert


_KINDS: Final = {dict: "a table", list: "an array", bool: "true or false", int: "a whole number", float: "a number"}


def _kind_of(value: object) -> str:
    return _KINDS.get(type(value), "a date or time")


def _shown(value: object) -> str:
    """Returns a value as it is written in a file, as far as that is the same in Python."""
    return str(value).lower() if isinstance(value, bool) else str(value)


#: Bytes of each namespace, as pairs.
Namespaces: Parser = _parse_namespaces
#: Bytes.
Size = _parsed_by(parse_size)
#: More than 0, at most 1.
Share = _parsed_by(parse_share)
#: Entries.
Count = _parsed_by(parse_count)
#: Seconds.
Age = _parsed_by(parse_duration)
#: Seconds, 0.01 to 3600.
Interval = _parsed_by(_parse_interval)
#: Bytes per second, 0 for none.
Rate = _parsed_by(_parse_rate)
#: Yes or no.
Switch = _parsed_by(_parse_switch)
#: :class:`.values.Address`.
MetricsAddress = _parsed_by(parse_address)
#: An absolute path.
MetricsPath = _parsed_by(_parse_metrics_path, str)
#: An absolute path.
FilePath = _parsed_by(_parse_path, str)
#: The result of :func:`lockcache.arguments.coerce_group`.
Group = _parsed_by(_parse_group, bool, int)
#: :class:`Free`.
FreeSpace = _parsed_by(_parse_free)
