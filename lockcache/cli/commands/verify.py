# SPDX-License-Identifier: Apache-2.0
"""``lockcache verify``: every entry's bytes against its record, and what is corrupt out of the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import click

from lockcache.cli import options
from lockcache.cli.catalogue import Own, open_catalogue
from lockcache.cli.open_directory import LOCK_TIMEOUT_SECONDS, recounted_when_interrupted
from lockcache.cli.output import plain, print_facts, print_json, size_in_words
from lockcache.cli.progress import progress_bar
from lockcache.filestream.entry import CORRUPT, PASSED_OVER, UNREADABLE, UNVERIFIED, WHOLE
from lockcache.filestream.repair import Verifiable
from lockcache.lowlevel import (
    SHARDS,
    CacheDirectory,
    Layout,
    Verdict,
    measure_quarantine,
    recount_all,
)
from lockcache.sizes import counted

_STATES: Final = (WHOLE, UNVERIFIED, CORRUPT, UNREADABLE, PASSED_OVER)
# After a power cut there may be ten thousands; a screen is enough to see what it is.
_MOST_SHOWN: Final = 50


@click.command("verify")
@options.directory
@click.option("--repair", is_flag=True, help="Move corrupt entries into quarantine, and recount.")
@click.option("--touch", is_flag=True, help="Also read other users' entries if that counts as a use of them.")
@options.as_json
def command(directory: str | None, repair: bool, touch: bool, as_json: bool) -> int:
    """Read every entry and compare it with its record.

    Safe while others use the cache, and does not count as a use. Entries without a record, such as those of
    cuda.core's own cache, are read and counted as unverified. Programs never get corrupt entries. --repair moves
    them, with their records, into lockcache/quarantine/ under DIR, where they count against the cap and take at most
    a sixteenth of it. A lockcache-daemon does both all the time, at its --scrub-rate.

    In pyptx's directories, entries that lockcache's adapter stored are verified, and --repair removes corrupt ones.
    Directories of Triton and other programs record no digests: verifying them is an error.

    Reading another user's entry counts as a use of it, unless root reads, or the file system is mounted noatime or
    read-only. Such entries are skipped; --touch reads them too.

    \b
    Exit codes:
      0    every entry that was read is intact or has no record
      1    something is corrupt or unreadable, whether or not it was repaired
           (with --json: found[].repaired says which)
      2    the command line is wrong
      130  Ctrl-C, which leaves nothing half done

    \b
    Examples:
      lockcache verify
      lockcache verify --repair /scratch/kernels
      lockcache verify --json /scratch/kernels | jq '.found[].entry'
    """
    catalogue = open_catalogue(directory)
    entries = catalogue.verifiable(repair=repair, touch=touch)
    verified = _Verified()
    opened = [CacheDirectory(catalogue.layout.root, LOCK_TIMEOUT_SECONDS)] if isinstance(catalogue, Own) else []
    with recounted_when_interrupted(opened if repair else []), progress_bar("verifying") as show:
        _verify(entries, verified, catalogue.held().bytes, show)
    repairs = [each for directory in opened for each in recount_all(directory)] if repair else []
    summary = verified.summary(catalogue.layout)
    if repair:
        summary["shards_recounted"] = len(repairs)
        summary["drift_bytes"] = sum(each.drift_bytes for each in repairs)
    if as_json:
        print_json({**summary, "found": [_as_fields(verdict) for verdict in verified.found]})
    else:
        _show(summary, verified.found, is_repaired=repair)
    return 1 if any(verdict.state in (CORRUPT, UNREADABLE) for verdict in verified.found) else 0


class _Verified:
    """The verdicts so far."""

    def __init__(self) -> None:
        self.bytes = 0
        self.counts: Counter[str] = Counter()
        #: The entries that an operator should look at.
        self.found: list[Verdict] = []

    def add(self, verdict: Verdict) -> None:
        self.counts[verdict.state] += 1
        if verdict.state in (CORRUPT, UNREADABLE):
            self.found.append(verdict)

    def summary(self, layout: Layout) -> dict[str, Any]:
        kept = measure_quarantine(layout)
        counts = {state.replace(" ", "_"): self.counts[state] for state in _STATES}
        return {
            "path": layout.root,
            "entries": sum(counts.values()),
            "bytes": self.bytes,
            **counts,
            "repaired": sum(verdict.is_repaired for verdict in self.found),
            "quarantine_entries": kept.entries,
            "quarantine_bytes": kept.bytes,
        }


def _verify(entries: Verifiable, verified: _Verified, total: int, show: Callable[[int, int], None]) -> None:
    for shard in range(SHARDS):
        for name in entries.names(shard):
            steps = entries.verify(name)
            while True:
                try:
                    verified.bytes += next(steps)
                except StopIteration as end:
                    if end.value is not None:
                        verified.add(end.value)
                    break
                # Entries written meanwhile are read too.
                show(verified.bytes, max(total, verified.bytes))


def _as_fields(verdict: Verdict) -> dict[str, Any]:
    return {
        "entry": verdict.name,
        "state": verdict.state,
        "bytes": verdict.size_bytes,
        "why": verdict.why,
        "in_words": verdict.in_words,
        "repaired": verdict.is_repaired,
        "moved_to": verdict.moved_to or None,
        "error": verdict.error or None,
    }


def _show(summary: dict[str, Any], found: list[Verdict], *, is_repaired: bool) -> None:
    for verdict in found[:_MOST_SHOWN]:
        click.echo(f"{verdict.state:<10}  {verdict.name}  {verdict.size_bytes:>10}  {_in_words(verdict, is_repaired)}")
    if len(found) > _MOST_SHOWN:
        click.echo(f"... and {len(found) - _MOST_SHOWN} more; --json shows all")
    if found:
        click.echo()
    print_facts(
        summary, False, {"bytes": size_in_words(summary["bytes"]),
                         "quarantine_bytes": size_in_words(summary["quarantine_bytes"])}
    )  # fmt: skip
    in_place = summary["corrupt"] - summary["repaired"]
    if in_place:
        hint = "see above why" if is_repaired else "lockcache verify --repair moves them into quarantine"
        _warn(f"{counted(in_place, 'corrupt entry is', 'corrupt entries are')} in place: {hint}")
    if summary["passed_over"]:
        hint = "of other owners, written just now, or replaced at each look; see lockcache verify --help"
        _warn(f"{counted(summary['passed_over'], 'entry was', 'entries were')} passed over: {hint}")


def _warn(words: str) -> None:
    click.echo(f"lockcache: {words}", err=True)


def _in_words(verdict: Verdict, is_repaired: bool) -> str:
    words = verdict.in_words
    if verdict.error:
        words += f"; NOT REPAIRED: {verdict.error}"
    elif verdict.moved_to:
        words += f"; moved to {verdict.moved_to}"
    elif verdict.is_repaired:
        words += "; removed, there was no room to keep it"
    elif is_repaired and verdict.state == CORRUPT:
        words += "; NOT REPAIRED"
    return plain(words)
