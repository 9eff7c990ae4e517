# SPDX-License-Identifier: Apache-2.0
"""Sizes, counts, shares and durations as people write them ("10G", "1.5M", "90%", "0.5s"), and text from anywhere as a
terminal may show it. For programs only.

Keeps one promise for every program: the same text means the same number everywhere, and what is not a size is refused
with a ``ValueError`` that names the text and says what is accepted. K, M, G, T, P and E are powers of 1000, as for
ccache, Kubernetes and disk makers; Ki, Mi, Gi, ... (or KiB, MiB, GiB, ...) are powers of 1024. So a cap of 10G is never
larger than someone expects who reads G as 2**30.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

# Half of a surrogate pair, as Python has a byte of a name that is not UTF-8.
_HALF: Final = re.compile("[\ud800-\udfff]")

#: For ``--help``.
SIZES_IN_WORDS: Final = (
    "512M, 10G, 1.5T (powers of 1000), 512MiB, 10GiB, 1.5TiB (powers of 1024), 500B, or a plain number of bytes from a "
    "million on"
)

_LARGEST_BYTES: Final = 2**63 - 1
# A smaller number without a unit is a forgotten one: 10 bytes as a cap empty a directory.
_SMALLEST_BARE_BYTES: Final = 1_000_000
_ACCEPTED_SIZES: Final = f"accepted: {SIZES_IN_WORDS}; at least 1 byte, less than 2**63"
_ACCEPTED_SHARES: Final = "accepted: a percentage from 1% to 100%, such as 90%"
_ACCEPTED_DURATIONS: Final = "accepted: a positive number with a unit, such as 30d, 2w, 12h, 1h30m, 0.5s or 500ms"

_SIZE: Final = re.compile(r"([0-9]{1,40}|[0-9]{0,40}\.[0-9]{1,40}) ?([kmgtpe]?)(i?)b?", re.ASCII | re.IGNORECASE)
_COUNT: Final = re.compile(r"([0-9][0-9_]{0,18})(?:\.([0-9]{1,9}))?([kKMG]?)", re.ASCII)
_SHARE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%", re.ASCII)
_DURATION: Final = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,9})?(?:ns|us|ms|s|m|h|d|w))+", re.ASCII)
_PART: Final = re.compile(r"([0-9.]+)([a-z]+)", re.ASCII)
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

_PREFIXES: Final = ("", "k", "m", "g", "t", "p", "e")
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_LONG_TIMES: Final = ((86_400, "d"), (3600, "h"), (60, "min"))


def parse_size(text: str) -> int:
    """Returns the bytes of "10G", say: at least 1, less than 2**63. Raises :class:`ValueError` naming ``text``."""
    stripped = text.strip()
    match = _SIZE.fullmatch(stripped)
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"{text!r} is not a size; {_ACCEPTED_SIZES}")
    number, prefix, is_binary = match.groups()
    whole, _, fraction = number.partition(".")
    unit_bytes: int = (1024 if is_binary else 1000) ** _PREFIXES.index(prefix.lower())
    size: int = int(whole + fraction) * unit_bytes // 10 ** len(fraction)
    if 0 < size < _SMALLEST_BARE_BYTES and stripped[-1].isdigit():
        raise ValueError(f"{text!r} has no unit: write {stripped}G or {stripped}M, or {stripped}B if you mean bytes")
    if not 0 < size <= _LARGEST_BYTES:
        raise ValueError(f"{text!r} is too {'large' if size > 0 else 'small'} for a size; {_ACCEPTED_SIZES}")
    return size


def parse_count(text: str) -> int:
    """Returns a whole number, at least 1, for "1000", "500k" and "1.5M". Raises :class:`ValueError` naming ``text``."""
    match = _COUNT.fullmatch(text.strip())
    whole, fraction, prefix = match.groups() if match else ("0", None, "")
    fraction = fraction or ""
    thousands: int = 1000 ** _PREFIXES.index(prefix.lower())
    count: int
    count, rest = divmod(int(whole + fraction) * thousands, 10 ** len(fraction))
    accepted = "accepted: 1 and more, such as 1000000, 500k or 1.5M"
    if match is None or rest:
        raise ValueError(f"{text!r} is not a whole number; {accepted}")
    if not 0 < count <= _LARGEST_BYTES:
        raise ValueError(f"{text!r} is too {'large' if count else 'small'} for a count; {accepted}")
    return count


def parse_share(text: str) -> float:
    """Returns 0.9 for "90%". Raises :class:`ValueError` naming ``text``."""
    match = _SHARE.fullmatch(text.strip())
    if match is None or not 1 <= float(match[1]) <= 100:
        raise ValueError(f"{text!r} is not a share; {_ACCEPTED_SHARES}")
    return float(match[1]) / 100


def parse_duration(text: str) -> float:
    """Returns the seconds, more than 0, of "0.5s" and the like. Raises :class:`ValueError` naming ``text``."""
    stripped = text.strip()
    if _DURATION.fullmatch(stripped) is None:
        raise ValueError(f"{text!r} is not a duration; {_ACCEPTED_DURATIONS}")
    try:
        duration = timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(stripped)))
    except OverflowError as error:
        raise ValueError(f"{text!r} is not a duration; {_ACCEPTED_DURATIONS}") from error
    if duration <= timedelta(0):
        raise ValueError(f"{text!r} is too short for a duration; {_ACCEPTED_DURATIONS}")
    return duration.total_seconds()


def format_size(size_bytes: int) -> str:
    """Returns a size for people, in powers of 1000 and rounded: "10.0 GB". :func:`parse_size` takes it."""
    value, unit = float(size_bytes), 0
    # A value that would be rounded to 1000.0 is 1.0 of the next unit.
    while abs(value) >= 999.95 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{size_bytes} B"


def format_duration(seconds: float) -> str:
    """Returns a duration for people, from microseconds to days: "12.3 ms", "1.3 s", "2.5 min"."""
    for size, unit in _LONG_TIMES:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.3g} ms" if seconds >= 0.001 else f"{seconds * 1e6:.3g} us"


def counted(number: int, one: str, many: str | None = None, *, grouping: str = "") -> str:
    """Returns ``1 entry``, ``2 entries``; with ``grouping=","`` also ``2,000 entries``."""
    plural = many or (f"{one[:-1]}ies" if one.endswith("y") else f"{one}s")
    return f"{number:{grouping}} {one if number == 1 else plural}"


def printable(text: object, encoding: str | None = None) -> str:
    """Returns one line that any terminal takes, and from which a path can be copied: letters of all languages stay.

    Escaped (``\\x1b``, ``\\u202e``) is what a terminal obeys, what turns the direction of text, bytes that do not
    decode, and what ``encoding`` lacks.
    """
    line = str(text)
    if not line.isprintable():
        line = "".join(each if each.isprintable() else _escaped(each) for each in line)
    return line.encode(encoding or "utf-8", "backslashreplace").decode(encoding or "utf-8")


def json_text(body: object) -> str:
    """Returns JSON that strict readers accept too: bytes of a name that are not UTF-8 are escaped, as ``\\xff``.

    The one rule for all that prints or serves JSON. Python's own would be half of a surrogate pair.
    """
    import json  # where sizes are parsed, hardly anybody prints it

    return json.dumps(_decodable(body))


def _decodable(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF.sub(lambda half: _escaped(half[0]), value)
    if isinstance(value, Mapping):
        return {_decodable(key): _decodable(each) for key, each in value.items()}
    return [_decodable(each) for each in value] if isinstance(value, (list, tuple)) else value


def _escaped(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a name that is not UTF-8, as Python has it
        return f"\\x{number - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")
