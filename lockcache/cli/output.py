# SPDX-License-Identifier: Apache-2.0
"""Output of the commands: tables for people, JSON for programs, and no control sequences for a terminal.

Keeps one promise: what comes from a cache directory (names, metadata, error texts) reaches a terminal as plain text,
without control characters: letters stay, so that a path can be copied.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final

import click

from lockcache.cli.tables import GAP, align, fit, width_of
from lockcache.errors import in_words
from lockcache.filestream import Seed
from lockcache.filestream.disk import denial
from lockcache.lowlevel import Described
from lockcache.sizes import counted, format_size, json_text, printable


def plain(text: object) -> str:
    """Returns a text from anywhere as :func:`printable` does, in the encoding of stdout."""
    return printable(text, sys.stdout.encoding)


def say(line: str) -> None:
    """Print a line to stderr where the exit code is another program's. Ignore a full disk, and a reader who left."""
    with contextlib.suppress(OSError):
        click.echo(plain(f"lockcache: {line}"), err=True)


def reason(error: Exception) -> str:
    """Returns why something failed, for people: of a path that may not be used also whose it is."""
    if isinstance(error, PermissionError) and error.errno == errno.EACCES and error.filename is not None:
        return denial(os.path.abspath(os.fsdecode(error.filename)))
    return in_words(error)


def ask(question: str) -> None:
    """Ask, and read the answer from stdin. Raises :class:`click.Abort` for a no, and :class:`click.ClickException`
    where nobody answers. Ctrl-C ends the process: nothing is half done at a question."""
    # Not by Python's handler: it only notes the signal, and a signal just before the read begins would be lost.
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        is_yes = click.confirm(plain(question), err=True)
    except click.Abort as abort:  # the end of stdin
        click.echo(err=True)
        raise click.ClickException("nothing was removed: nobody answered yes or no; --yes answers for you") from abort
    finally:
        signal.signal(signal.SIGINT, handler)
    if not is_yes:
        click.echo("lockcache: nothing was removed", err=True)
        raise click.Abort


def print_json(found: object) -> None:
    """Print one JSON document to stdout."""
    click.echo(json_text(found))


def print_facts(
    found: dict[str, Any], as_json: bool, shown: dict[str, str] | None = None, labels: dict[str, str] | None = None
) -> None:
    """Print ``found`` as one JSON object, or as a table, where ``shown`` replaces values and ``labels`` names."""
    if as_json:
        print_json(found)
        return
    rows = [
        ((labels or {}).get(name, name.replace("_", " ").removesuffix(" bytes")), plain(in_one_word(value)))
        for name, value in {**found, **(shown or {})}.items()
    ]
    # Not wrapped as a table is: a path is there to be copied.
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        click.echo(f"{name:<{width}}  {text}")


def print_table(title: str, heads: tuple[str, ...], rows: Iterable[Iterable[object]]) -> None:
    """Print a table under a title: text to the left, numbers to the right, and nothing cut short."""
    cells = [list(row) for row in rows]
    numbers = {column for row in cells for column, cell in enumerate(row) if not isinstance(cell, str)}
    texts = [[plain(cell) for cell in row] for row in (heads, *cells)]
    click.echo(f"\n{title}\n")
    for lines in align(texts, numbers, table_width()):
        for line in lines:
            click.echo(GAP.join(line).rstrip())


def table_width() -> int | None:
    """Returns the width of the terminal that stdout is; ``None`` if it is something else, where no line is too long."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


# By names, in the words of click.
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "bold": {"bold": True},
    "bold red": {"fg": "red", "bold": True},
    "cyan": {"fg": "cyan"},
    "dim": {"dim": True},
    "green": {"fg": "green"},
    "red": {"fg": "red"},
    "reverse": {"reverse": True},
    "yellow": {"fg": "yellow"},
}


def paint(text: str, style: str) -> str:
    """Returns a text in a style, for :func:`click.echo`, which takes it off again where stdout is not a terminal."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if is_plain or not style else click.style(text, **_STYLES[style])


_SHORT_NAME: Final = 12
# By the first so many entries it is decided which columns are shown: a listing is printed as it is read.
_DECIDING: Final = 256
_NUMBERS: Final = ("SIZE", "USED", "AGE", "COST")
# The last is as long as it needs to be; the others have these widths, or that of the longest of the first entries.
_COLUMNS: Final = {
    "NAME": _SHORT_NAME,
    "SIZE": 8,
    "USED": 4,
    "AGE": 4,
    "COST": 5,
    "KIND": 5,
    "ARCH": 5,
    "COMPILER": 12,
    "NAMESPACE": 9,
    "KERNEL": 0,
}
# Omitted in this order on a terminal that is too narrow for them and so many cells of the kernel's name.
_OMITTED: Final = ("COMPILER", "AGE", "KIND", "NAMESPACE", "COST", "USED", "ARCH")
_LEAST_OF_A_NAME: Final = 20


def entry_lines(entries: Iterable[Described | str], full: bool = False) -> Iterator[str]:
    """Yields a heading and a line for each entry, all with the ages of now; ``full``: whole hashes, names and columns.

    A name stands for an entry that is missing.
    No line is longer than the terminal. Elsewhere all columns are there but a namespace that no entry states.
    """
    now_ns, left = time.time_ns(), iter(entries)
    first = [_cells(entry, full, now_ns) for entry in islice(left, _DECIDING)]
    widths = {
        name: max(least, len(name), *(width_of(cells[name]) for cells in first)) if first else max(least, len(name))
        for name, least in _COLUMNS.items()
        if name != "NAMESPACE" or full or any(cells[name] != "-" for cells in first)
    }
    room = None if full else table_width()
    for name in _OMITTED if room is not None else ():
        if sum(widths.values()) - widths["KERNEL"] + len(GAP) * (len(widths) - 1) + _LEAST_OF_A_NAME <= (room or 0):
            break
        widths.pop(name, None)
    heading = {name: name for name in _COLUMNS}
    for cells in chain([heading], first, (_cells(entry, full, now_ns) for entry in left)):
        yield _line(cells, widths, room)


def _line(cells: dict[str, str], widths: dict[str, int], room: int | None) -> str:
    *others, last = widths
    padded = [
        cells[each].rjust(widths[each]) if each in _NUMBERS else _filled(cells[each], widths[each]) for each in others
    ]
    line = GAP.join([*padded, cells[last]])
    return line if room is None or width_of(line) <= room else f"{fit(line, room - 1).rstrip()}{plain('…')[:1]}"


def _filled(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))


def _cells(entry: Described | str, full: bool, now_ns: int) -> dict[str, str]:
    if isinstance(entry, str):
        return {**dict.fromkeys(_COLUMNS, "-"), "NAME": entry}
    # In other programs' directories a name is a path, whose last part tells entries apart.
    name = entry.name if full else entry.name.rpartition("/")[2][:_SHORT_NAME]
    return {
        "NAME": plain(name),
        "SIZE": format_size(entry.size_bytes),
        "USED": elapsed(entry.last_use_ns, now_ns) if entry.last_use_ns else "-",
        "AGE": "-" if entry.created_ns is None else elapsed(entry.created_ns, now_ns),
        "COST": "-" if entry.cost_ns is None else span(entry.cost_ns),
        "KIND": entry.record if entry.record in ("damaged", "unreadable") else plain(entry.kind or "-"),
        "ARCH": plain(entry.arch or "-"),
        "COMPILER": plain(entry.compiler or "-"),
        "NAMESPACE": plain(entry.namespace or "-"),
        "KERNEL": plain(entry.label or "-"),
    }


def in_one_word(value: object) -> object:
    """Returns ``yes`` or ``no`` for a bool, and any other value as it is."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def size_in_words(number: int) -> str:
    """Returns ``10.0 GB (10000000000 bytes)``."""
    return f"{format_size(number)} ({counted(number, 'byte')})"


def cap_in_words(number: int | None) -> str:
    """Returns a cap like :func:`size_in_words`; ``none`` if there is no cap."""
    return "none" if number is None else size_in_words(number)


def seed_in_words(seed: Seed | None, kernels: int | None = None) -> str:
    """Returns the bundle below a directory, its size, and the number of its kernels if that is known; or ``none``."""
    if seed is None:
        return "none"
    words = f"{seed.path}, {'not in use' if seed.is_detached else size_in_words(seed.bytes)}"
    return words if kernels is None else f"{words}: serves {counted(kernels, 'kernel')}"


_UNITS = ((86400.0 * 365, "y"), (86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))


def elapsed(since_ns: int, now_ns: int | None = None) -> str:
    """Returns the age in two or three characters, ``42s`` or ``3d``; ``0s`` for a time in the future."""
    seconds = ((time.time_ns() if now_ns is None else now_ns) - since_ns) / 1e9
    for unit, name in _UNITS:
        if seconds >= unit:
            return f"{seconds / unit:.0f}{name}"
    return "0s"


def span(duration_ns: int) -> str:
    """Returns a duration in a few characters: ``380us``, ``45ms``, ``1.3s``, ``2.1m``."""
    for unit_ns, name in ((3600 * 10**9, "h"), (60 * 10**9, "m"), (10**9, "s"), (10**6, "ms")):
        if duration_ns >= unit_ns:
            return f"{duration_ns / unit_ns:.0f}{name}" if name == "ms" else f"{duration_ns / unit_ns:.1f}{name}"
    return f"{duration_ns / 1000:.0f}us"
