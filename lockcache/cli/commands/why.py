# SPDX-License-Identifier: Apache-2.0
"""``lockcache why``: which parts of a key made it miss, by the stored entries that are nearest to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final, NamedTuple

import click

from lockcache.arguments import resolve_path
from lockcache.cli import options
from lockcache.cli.key_argument import complete_name, is_called, key_name, resolve_name
from lockcache.cli.open_directory import are_swapped, default_cache, look
from lockcache.cli.output import elapsed, plain, print_json
from lockcache.cli.progress import step_bar
from lockcache.errors import in_words
from lockcache.explain import Difference, Part, reasons_of, values_in_words
from lockcache.filestream.bundle import SeededRecords
from lockcache.filestream.inspect import (
    FLAWS,
    Miss,
    Nearest,
    Neighbour,
    Statement,
    Subject,
    find_nearest,
    read_misses,
    read_statement,
)
from lockcache.lowlevel import SHARDS, Layout, find_entry, is_cache
from lockcache.sizes import counted

_NAME: Final = 12
_NEAREST: Final = 3
# Compared for them: entries of other kernels are left out, and may be nearer than the last of the same kernel.
_COMPARED: Final = 16
_CODE: Final = "code"
_HEADER: Final = "header "
# More headers than this are one line, and more parts a number in the answer.
_MOST_HEADERS: Final = 5
_MOST_NAMED: Final = 3
_COUNT: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


class _Asked(NamedTuple):
    """One key that is asked about: a miss that was reported, or an entry."""

    name: str
    label: str
    parts: tuple[Part, ...]
    stored_ns: int | None
    #: When the same key last missed before, among the misses that are kept.
    before_ns: int | None
    #: Why the entry that was there was not served: a key of :data:`FLAWS`, else empty.
    replaced: str
    #: The compiler that the stored entry states, with its whole version.
    compiler: str | None


@click.command("why")
@click.argument("key", required=False, shell_complete=complete_name)
@options.directory
@click.option(
    "--last",
    metavar="[N]",
    is_flag=False,
    flag_value="1",
    help="Show the last N misses that programs reported. [default: 1]",
)
@click.option("--dir", "stated", metavar="DIR", type=options.Directory(), help="The same as DIR.")
@options.as_json
def command(key: str | None, directory: str | None, last: str | None, stated: str | None, as_json: bool) -> None:
    """Show why a kernel was compiled: how its key differs from the most similar entries.

    KEY is the key as text, hex: and the key's bytes in hex, the start of an entry's hash, or a kernel's name, as
    'lockcache ls' prints them; of several entries of one name, the latest miss is shown. Without KEY, the last miss
    is shown. A single argument is DIR if a directory of that name exists, otherwise KEY; with --dir it is KEY. The
    first line is the answer; below it are the nearest entries of the same kernel, with the values of both keys: of
    the kernel that was compiled, and of the entry.

    For keys of lockcache.cuda.Program, of make_program_cache_key and of frameworks on lockcache, entries keep hashes of
    the parts of the key, and short values of options, but never source code. Parts of frameworks have the framework's
    words; "rest of the key" differs where a framework says no more. Programs report misses when they store an entry
    and when they end. Entries of the directory's seed are compared too, at most 250,000 together. This does not count
    as a use of them.

    \b
    Examples:
      lockcache why
      lockcache why 3f2a9c41 /scratch/kernels
      lockcache why --last 5 --json /scratch/kernels | jq '.misses[].nearest'
    """
    question = _question(key, directory, last, stated)
    layout = _look(question)
    misses = read_misses(layout)
    if question.key is None:
        asked = _latest(layout, misses, int(question.last or 1))
    else:
        asked = [_of_key(layout, question.key, misses)]
    found = list(zip(asked, _nearest(layout, asked), strict=True))
    if as_json:
        print_json({"path": layout.root, "misses": [_as_json(each, nearest) for each, nearest in found]})
        return
    for each, nearest in found:
        for line in _lines(each, nearest):
            click.echo(plain(line))
    silent = found[0][1].seeded_without_parts
    if silent:
        click.echo(f"not compared: {counted(silent, 'entry')} of the seed, without the parts of a key")


class _Question(NamedTuple):
    """The arguments, sorted out."""

    key: str | None
    directory: str | None
    last: str | None


def _question(key: str | None, directory: str | None, last: str | None, stated: str | None) -> _Question:
    """Returns which argument is which. Raises :class:`click.UsageError` where they contradict each other."""
    if last is not None and _COUNT.fullmatch(last) is None:  # click took DIR for N
        key, directory, last = last, key, "1"
    if last is not None and int(last) == 0:
        raise click.UsageError("--last 0 shows nothing; give 1 or more")
    if directory is None and stated is None and key is not None and (last is not None or _is_directory(key)):
        key, directory = None, key
    if key is not None and are_swapped(key, directory):
        raise click.UsageError(f"KEY comes first: lockcache why {directory} {key}")
    if directory is not None and stated is not None:
        raise click.UsageError(f"the directory is given twice: {directory!r} and --dir {stated!r}")
    if key is not None and last is not None:
        raise click.UsageError(f"--last asks for no KEY, and {key!r} is one; give one of the two")
    return _Question(key, directory if stated is None else stated, last)


def _is_directory(text: str) -> bool:
    """Returns whether a single argument is DIR. Raises :class:`click.UsageError` where it is a stored key as well."""
    if not os.path.isdir(os.path.expanduser(text)):
        return False
    default = default_cache()
    if "/" not in text and default is not None and _is_stored(default, text):
        raise click.UsageError(
            f"{text!r} is a directory here and a key in {default.root}; write --dir {text}, or {text} {default.root}"
        )
    return True


def _is_stored(layout: Layout, text: str) -> bool:
    try:
        resolve_name(layout, text)
    except click.BadParameter:
        return False
    return True


def _look(question: _Question) -> Layout:
    if question.key is None or question.directory is not None or is_cache(default := Layout(resolve_path(None))):
        return _look_or_hint(question)
    raise click.UsageError(
        f"there is no directory {question.key!r}, and no cache in {default.root} where it could be a key; "
        "for a key elsewhere add its DIR"
    )


def _look_or_hint(question: _Question) -> Layout:
    try:
        return look(question.directory)
    except FileNotFoundError as error:
        if question.directory is not None:
            raise
        last = "" if question.last is None else f" --last {question.last}"
        raise click.UsageError(f"{in_words(error)}; for another directory: lockcache why{last} DIR") from None


def _latest(layout: Layout, misses: list[Miss], most: int) -> list[_Asked]:
    if not misses:
        raise click.ClickException(
            f"no miss was reported in {layout.root}: programs report misses when they store an entry and when they "
            "end, for keys of lockcache.cuda.Program, of make_program_cache_key and of frameworks on lockcache"
        )
    return [_of_miss(layout, miss, misses) for miss in misses[:most]]


def _of_miss(layout: Layout, miss: Miss, misses: list[Miss]) -> _Asked:
    before = [each.time_ns for each in misses if each.name == miss.name and each.time_ns < miss.time_ns]
    compiler = _compiler(_statement(layout, miss.name))
    return _Asked(
        miss.name, miss.label, tuple(miss.parts), miss.time_ns, max(before, default=None), miss.replaced, compiler
    )


def _statement(layout: Layout, name: str) -> Statement | None:
    found = find_entry(layout, name)
    return None if found is None else read_statement(layout, found)


def _compiler(statement: Statement | None) -> str | None:
    known = statement.metadata if statement is not None else None
    compiler = (known or {}).get("compiler")
    return compiler if isinstance(compiler, str) else None


def _of_key(layout: Layout, key: str, misses: list[Miss]) -> _Asked:
    name = key_name(key)
    for miss in misses:
        if miss.name == name or (len(key) >= 4 and miss.name.startswith(key.lower())):
            return _of_miss(layout, miss, misses)
    try:
        name = resolve_name(layout, key)
    except click.BadParameter:  # several entries have the name, or none has it any more: the latest miss of that kernel
        called = next((miss for miss in misses if is_called(miss.label, key)), None)
        if called is None:
            raise
        return _of_miss(layout, called, misses)
    if find_entry(layout, name) is None:
        raise click.ClickException(
            f"the seed of {layout.root} serves the entry {name[:_NAME]}: it was not compiled here"
        )
    statement = _statement(layout, name)
    if statement is None or not statement.parts:
        raise click.ClickException(
            f"the entry {name[:_NAME]} does not say what its key was made of: its program made the key itself"
        )
    return _Asked(name, statement.label or "", statement.parts, statement.created_ns, None, "", _compiler(statement))


def _nearest(layout: Layout, asked: Sequence[_Asked]) -> list[Nearest]:
    subjects = [Subject(each.name, each.parts, each.stored_ns or 0) for each in asked]
    with step_bar("comparing", SHARDS) as advance, _opened_seed(layout) as seed:
        return find_nearest(layout, subjects, _COMPARED, lambda: advance(1), seed)


@contextmanager
def _opened_seed(layout: Layout) -> Iterator[SeededRecords | None]:
    """Open the seed of a directory; ``None`` where there is none, or none that can be read, which is said."""
    try:
        seed = SeededRecords(layout)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        click.echo(f"the entries of the seed are not compared: {plain(in_words(error))}", err=True)
        yield None
        return
    with closing(seed):
        yield seed


def _lines(asked: _Asked, nearest: Nearest) -> list[str]:
    related = [each for each in nearest.neighbours if _is_related(asked, each)][:_NEAREST]
    since = f" was compiled {elapsed(asked.stored_ns)} ago" if asked.stored_ns else ""
    lines = [f"{asked.label or '-'} ({asked.name[:_NAME]}){since}: {_answer(asked, nearest, related)}"]
    for neighbour in related:
        lines += _differences(asked, neighbour)
    return lines


def _is_related(asked: _Asked, neighbour: Neighbour) -> bool:
    """Returns whether an entry is of the same kernel: it has the name, or the source. Without a name any entry is."""
    label = neighbour.statement.label or ""
    if not asked.label or label.partition("<")[0] == asked.label.partition("<")[0]:
        return True
    states_code = any(part.name == _CODE for part in asked.parts)
    return states_code and all(each.name != _CODE for each in neighbour.differences)


def _answer(asked: _Asked, nearest: Nearest, related: Sequence[Neighbour]) -> str:
    """Returns why it was compiled, in one line."""
    found = FLAWS.get(asked.replaced)
    if asked.before_ns is not None:
        found = found or "the entry that was stored then had gone, or was not waited for"
        return f"the same key was compiled {elapsed(asked.before_ns)} ago too: {found}"
    if found is not None:
        return f"the same key was stored before: {found}"
    if not related:
        seeded = f" and {nearest.seeded - nearest.seeded_without_parts} of the seed" if nearest.seeded else ""
        called = f"no other entry is called {asked.label.partition('<')[0]}" if asked.label else "nothing is like it"
        return f"new, {called} ({counted(nearest.looked_at, 'entry')}{seeded} compared)"
    names = list(dict.fromkeys("headers" if _is_header(each) else each.name for each in related[0].differences))
    if not names:
        return "no part that is kept differs from the nearest entry"
    if len(names) > _MOST_NAMED:
        return f"{len(related[0].differences)} parts of its key differ from the nearest entry"
    verb = "differs" if len(names) == 1 and names != ["headers"] else "differ"
    return f"{' and '.join(names)} {verb} from the nearest entry"


def _differences(asked: _Asked, neighbour: Neighbour) -> list[str]:
    statement, count = neighbour.statement, len(neighbour.differences)
    parts = f"{counted(count, 'part differs', 'parts differ')}" if count else "no part that is kept differs"
    when = f", stored {elapsed(statement.created_ns)} ago" if statement.created_ns else ""
    when += " (after it)" if 0 < (asked.stored_ns or 0) < (statement.created_ns or 0) else ""
    when += ", in the seed" if neighbour.is_seeded else ""
    legend = " (compiled key / this entry)" if count else ""
    lines = [f"  {neighbour.name[:_NAME]}  {statement.label or '-'}{when}: {parts}{legend}"]
    headers = [each for each in neighbour.differences if _is_header(each)]
    rows = [
        (_title(each, asked, neighbour), _values(each, asked, statement))
        for each in neighbour.differences
        if each not in headers or len(headers) <= _MOST_HEADERS
    ]
    if len(headers) > _MOST_HEADERS:
        named = ", ".join(each.name.removeprefix(_HEADER) for each in headers[:_MOST_NAMED])
        rows.append((f"{len(headers)} headers", f"{named}, ... (all: --json)"))
    width = max((len(title) for title, _ in rows), default=0)
    return [*lines, *(f"    {title:<{width}}  {values}" for title, values in rows)]


def _is_header(difference: Difference) -> bool:
    return difference.name.startswith(_HEADER)


def _values(difference: Difference, asked: _Asked, statement: Statement) -> str:
    builds = (asked.compiler, _compiler(statement))
    if difference.name == "compiler" and all(builds) and builds[0] != builds[1]:
        return f"{builds[0]} / {builds[1]}"
    return values_in_words(difference)


def _title(difference: Difference, asked: _Asked, neighbour: Neighbour) -> str:
    reasons = _reasons(difference, asked, neighbour)
    return f"{difference.name}, because of {' and '.join(reasons)}" if reasons else difference.name


def _reasons(difference: Difference, asked: _Asked, neighbour: Neighbour) -> list[str]:
    """Returns the parts that make the differing part belong to the key that has it."""
    parts = neighbour.statement.parts if difference.mine is None else asked.parts
    return reasons_of(difference.name, parts)


def _as_json(asked: _Asked, nearest: Nearest) -> dict[str, Any]:
    return {
        "name": asked.name,
        "label": asked.label or None,
        "stored_ns": asked.stored_ns,
        "before_ns": asked.before_ns,
        "replaced": asked.replaced or None,
        "parts": [part._asdict() for part in asked.parts],
        "looked_at": nearest.looked_at,
        "seeded": {"looked_at": nearest.seeded, "without_parts": nearest.seeded_without_parts},
        "nearest": [
            {
                "name": neighbour.name,
                "label": neighbour.statement.label,
                "created_ns": neighbour.statement.created_ns,
                "in_seed": neighbour.is_seeded,
                "differences": [
                    {
                        "part": each.name,
                        "because_of": _reasons(each, asked, neighbour),
                        "mine": _part(each.mine),
                        "other": _part(each.other),
                    }
                    for each in neighbour.differences
                ],
            }
            for neighbour in nearest.neighbours[:_NEAREST]
        ],
    }


def _part(part: Part | None) -> dict[str, str] | None:
    return part and {"hash": part.hash, "value": part.value}
