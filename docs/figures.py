# SPDX-License-Identifier: Apache-2.0
"""The measured figures of the documents: one file that one run of the benchmark wrote, and the pages that show it.

``python docs/figures.py RUN.json`` takes over the file that ``lockcache-stress bench --json-file`` left, with today's
date and the commit, into ``docs/figures.json``, and fills the marked places of all pages. ``--boot RUN.json``
takes over a run of the boot alone, until the next whole run replaces both. Without a file it fills the
pages again, and with ``--check`` it says which of them disagree.

Marked places are comments, which no reader sees::

    <!-- figures: NAME -->        lines between these are made of the run: NAME is one of BLOCKS
    <!-- end of figures -->
    <!--figure hit-->11 us<!--end-->              one figure of ROWS, of lockcache
    <!--figure hit cuda.core-->30 us<!--end-->    the same of another cache
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, NamedTuple

PROJECT: Final = Path(__file__).parents[1]
_FLOOR: Final = "plain files"

_BLOCK: Final = re.compile(r"(<!-- figures: (?P<name>[\w-]+) -->\n)(.*?)(^<!-- end of figures -->$)", re.M | re.S)
_INLINE: Final = re.compile(r"(<!--figure (?P<row>[\w-]+)(?: (?P<cache>[\w.-]+))?-->)(.*?)(<!--end-->)")


class MissingError(Exception):
    """A page shows a figure that the run does not have."""


class Row(NamedTuple):
    """One row: a line of the benchmark, where it has each cache's number, and how that number reads."""

    #: As the reader sees it, with the groups of ``line``.
    text: str
    #: A regular expression of the line's name.
    line: str
    #: The key of lockcache's number and of cuda.core's, and of a mapping with those of others.
    keys: tuple[str, ...]
    form: Callable[[float], str]
    #: The sum of all lines that match, not the first.
    is_sum: bool = False


def seconds(value: float) -> str:
    """Returns a time to two digits, in the unit in which it is at least a tenth."""
    unit, size = ("s", 1.0) if value >= 0.1 else ("ms", 1e-3) if value >= 1e-4 else ("us", 1e-6)
    return f"{_two_digits(value / size)} {unit}"


def _two_digits(value: float) -> str:
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:.1f}" if rounded >= 1 else f"{rounded:.2f}"


def _us(value: float) -> str:
    return seconds(value / 1e6)


def _ms(value: float) -> str:
    return seconds(value / 1e3)


def _caps(value: float) -> str:
    return f"{value * 100:.1f} % of the cap" if value < 1 else f"{_two_digits(value)} times the cap"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _times(unit: str) -> Callable[[float], str]:
    return lambda value: f"{value:,.0f} {unit}"


_TIMES_US: Final = ("ours_us", "theirs_us", "others_us")

ROWS: Final = {
    "hit": Row("a hit of 16 KiB (lockcache verifies it)", r"hit, 16 KiB", _TIMES_US, _us),
    "program-hit": Row("a hit through `Program.compile`", r"program hit, compile", _TIMES_US, _us),
    "miss": Row("a miss", r"miss$", _TIMES_US, _us),
    "put": Row("a put of a new key, 16 KiB, on a new ext4", r"put, .*, new ext4", _TIMES_US, _us),
    "put-used": Row("a put of a new key, 16 KiB, on the disk itself", r"put, .*, this disk", _TIMES_US, _us),
    "put-small": Row("a put into a full cache of 1,000 entries", r"put into a full cache of \d\d,", ("small_us",), _us),
    "put-full": Row(
        "a put into a full cache of {n} entries",
        r"put into a full cache of (?P<n>\d\d,\d+|\d+)",
        ("large_us", "theirs_us", "others_us"),
        _us,
    ),
    "open": Row(
        "open a capped cache of {n} entries",
        r"open, capped, (?P<n>[\d,]+)",
        ("many_us", "theirs_us", "others_us"),
        _us,
    ),
    "peak": Row(
        "{p} processes write {n} x 64 KiB each into a cap of {cap}: the most on disk",
        r"(?P<p>\d+) processes x (?P<n>\d+) x 64 KiB into (?P<cap>\d+ MiB)",
        ("ours_over_cap", "theirs_over_cap", "others_over_cap"),
        _caps,
    ),
    "herd": Row(
        "{p} processes want the same {n} new kernels at once",
        r"(?P<p>\d+) processes x (?P<n>\d+) keys of 200 ms",
        ("ours", "theirs"),
        _times("compilations"),
    ),
    "herd-time": Row(
        "the same, 200 ms each: until all have all",
        r"\d+ processes x \d+ keys of 200 ms",
        ("ours_seconds", "theirs_seconds"),
        seconds,
    ),
    "damage": Row(
        "damaged entries returned, of {entries}", r"damaged entries served", ("ours", "theirs"), _count, is_sum=True
    ),
    "import": Row("import, without its dependencies", r"import, over", ("ours_ms", "theirs_ms"), _ms),
    "daemon-idle": Row(
        "an idle daemon over {n} entries",
        r"idle daemon over (?P<n>\d{1,3},\d+) entries",
        ("core_percent",),
        lambda value: f"{_two_digits(value)} % of a core",
    ),
    "daemon-million": Row(
        "an idle daemon over {n} entries",
        r"idle daemon over (?P<n>\d,\d+,\d+) entries",
        ("core_percent",),
        lambda value: f"{_two_digits(value)} % of a core",
    ),
    "daemon-memory": Row(
        "its memory at the most, a sweep by last use included",
        r"its memory .* by lru",
        ("peak_rss_bytes",),
        lambda value: f"{value / 1e6:.0f} MB",
    ),
    "daemon-memory-cost": Row(
        "the same with a sweep by value",
        # Of a run before 0.3.0: by cost.
        r"its memory .* by (?:value|cost)",
        ("peak_rss_bytes",),
        lambda value: f"{value / 1e6:.0f} MB",
    ),
    "daemon-sweep": Row(
        "its sweep of {n} evictions",
        r"daemon's sweep of (?P<n>[\d,]+) evictions",
        ("milliseconds",),
        _ms,
    ),
    "daemon-sweep-million": Row(
        "its sweep of {n} evictions out of a million, next to {w} writers",
        r"its sweep of (?P<n>[\d,]+) evictions by lru, (?P<w>\d+) writers",
        ("milliseconds",),
        _ms,
    ),
}  # fmt: skip

# With more than twice as many processes as cores, times are those of the other work.
_BUSY_LOAD: Final = 4.0
_BOOT: Final = re.compile(r"boot of (?P<processes>\d+) processes x (?P<kernels>\d+) kernels, (?P<start>.*)")
_STARTS: Final = {
    "no cache": "without a cache",
    "cold": "first start",
    "warm": "next start",
    "another path": "headers at another path",
    "another node": "another node, from a bundle",
}


class Run:
    """One run of the benchmark: a dictionary of ``docs/figures.json``."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        self._run = run

    def cells(self, name: str) -> tuple[str, dict[str, str]] | None:
        """Returns a row's text and its cell for each cache; nothing where this was not measured."""
        row, found, groups = ROWS[name], dict[str, float](), dict[str, str]()
        for line in self._run["lines"]:
            match, numbers = re.match(row.line, line["name"]), line.get("numbers") or {}
            if match and numbers:
                groups.update(match.groupdict())
                for cache, value in _numbers(row, numbers):
                    found[cache] = found.get(cache, 0) + value if row.is_sum else found.get(cache, value)
        if not found:
            return None
        text = row.text.format(**groups, entries=f"{self._sum(row, 'entries'):,}")
        return text, {cache: row.form(value) for cache, value in found.items()}

    def _sum(self, row: Row, key: str) -> int:
        lines = [line for line in self._run["lines"] if re.match(row.line, line["name"])]
        return sum((line.get("numbers") or {}).get(key, 0) for line in lines)

    def table(self, names: Sequence[str]) -> str:
        """Returns these rows as a table, with a column for each cache that was measured."""
        rows = [cells for cells in map(self.cells, names) if cells]
        caches = list(dict.fromkeys(cache for _, cells in rows for cache in cells))
        caches.sort(key=lambda cache: (cache != "lockcache", cache != "cuda.core", cache == _FLOOR))
        lines = [["", *caches], ["---"] * (len(caches) + 1)]
        lines += [[text, *(cells.get(cache, "") for cache in caches)] for text, cells in rows]
        return "".join("|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|\n" for line in lines)

    def source(self, times: str = "times are medians") -> str:
        """Returns the sentence that says which run this was."""
        run, machine = self._run, self._run["machine"]
        system = re.sub(r"(\d+\.\d+)[.-]\S*", r"\1", machine["kernel"])
        python = re.sub(r"(\d+\.\d+)\.\S*", r"\1", machine["python"])
        load = float(str(machine.get("load", 0)).split()[0])
        busy = f"; a busy machine (load {load:.0f}), so only ratios count" if load > _BUSY_LOAD else ""
        return (
            f"One run of `lockcache-stress bench` on {run['date']} at commit {run['commit']}: {machine['cpu']}, "
            f"{system},\n{machine['file system']}, {python}, cuda-core {machine['cuda-core']}; {times}{busy}.\n"
        )

    def boot(self) -> str:
        """Returns the table of a boot, and the sentence about it; of a run of its own where there is one."""
        run = Run(self._run.get("boot", self._run))
        lines = [(match, line["numbers"]) for line in run._run["lines"] if (match := _BOOT.match(line["name"]))]
        if not lines:
            return run.source()
        processes, kernels = lines[0][0]["processes"], lines[0][0]["kernels"]
        head = [
            f"{processes} processes, {kernels} kernels with `cuda_fp16.h`",
            "compilations",
            "wall",
            "processor time",
        ]
        rows = [head, ["---"] * len(head)]
        for match, found in lines:
            times = [seconds(found[key]) for key in ("seconds", "cpu_seconds")]
            rows.append([_STARTS[match["start"]], f"{found['compilations']:,}", *times])
        return (
            "".join("|" + "|".join(f" {cell} " for cell in row) + "|\n" for row in rows)
            + "\n"
            + run.source("each start once")
        )


def _numbers(row: Row, numbers: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for cache, key in zip(("lockcache", "cuda.core"), row.keys, strict=False):
        if numbers.get(key) is not None:
            yield cache, numbers[key]
    if numbers.get("floor_us") is not None:
        yield _FLOOR, numbers["floor_us"]
    if len(row.keys) > 2:
        yield from (numbers.get(row.keys[2]) or {}).items()


BLOCKS: Final[Mapping[str, Callable[[Run], str]]] = {
    "boot": Run.boot,
    "long": lambda run: run.source() + "\n" + run.table(list(ROWS)),
}


def fill(text: str, run: Run) -> str:
    """Returns a page with its marked places made of the run again."""

    def inline(match: re.Match[str]) -> str:
        cells = run.cells(match["row"])
        cache = (match["cache"] or "lockcache").replace("plain-files", _FLOOR)
        if cells is None or cache not in cells[1]:
            raise MissingError(f"{match['row']} of {cache}")
        return f"{match[1]}{cells[1][cache]}{match[5]}"

    text = _INLINE.sub(inline, text)
    return _BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match['name']](run)}\n{match[4]}", text)


def read_run(path: Path, *, is_quick_allowed: bool = False) -> dict[str, Any]:
    """Returns what ``docs/figures.json`` keeps of the file that the benchmark left, with its date and the commit."""
    found = json.loads(path.read_text())
    if found["quick"] and not is_quick_allowed:
        raise MissingError(f"{path} is of a --quick run, whose numbers say nothing; --quick-too takes it, to try this")
    commit = subprocess.run(
        ["git", "-C", str(PROJECT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    date = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).date().isoformat()
    lines = [{"name": line["name"], "numbers": line["numbers"]} for line in found["lines"] if line.get("numbers")]
    return {"date": date, "commit": commit, "machine": found["machine"], "quick": found["quick"], "lines": lines}


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill or check the pages; 1 if one disagrees or asks for what the run does not have."""
    parser = argparse.ArgumentParser(description="Fill the figures of the documents from a run of the benchmark.")
    parser.add_argument("run", nargs="?", type=Path, help="what `lockcache-stress bench --json-file` left")
    parser.add_argument(
        "--boot", type=Path, help="what `lockcache-stress bench boot --json-file` left, and nothing else"
    )
    parser.add_argument("--check", action="store_true", help="change nothing, say which pages disagree")
    parser.add_argument("--quick-too", action="store_true", help="take a run with --quick, to try this")
    parser.add_argument("--project", type=Path, default=PROJECT, help="the checkout whose pages these are")
    given = parser.parse_args(arguments)
    kept = given.project / "docs" / "figures.json"
    try:
        figures = read_run(given.run, is_quick_allowed=given.quick_too) if given.run else json.loads(kept.read_text())
        if given.boot:
            figures["boot"] = read_run(given.boot)
        changed = _changes(given.project, Run(figures))
    except MissingError as error:
        print(f"figures: {error}", file=sys.stderr)
        return 1
    if given.run:
        missing = [name for name in ROWS if Run(figures).cells(name) is None]
        print(f"figures: not in this run, and left out: {', '.join(missing) or 'nothing'}")
    if given.run or given.boot:
        changed[kept] = json.dumps(figures, indent=1) + "\n"
    for path, text in changed.items():
        print(f"figures: {path.relative_to(given.project)} {'disagrees' if given.check else 'filled'}")
        if not given.check:
            path.write_text(text)
    return int(given.check and bool(changed))


def _changes(project: Path, run: Run) -> dict[Path, str]:
    """Returns the pages that are not as the run says, as they should be."""
    changed = {}
    for path in [project / "README.md", *sorted((project / "docs").rglob("*.md"))]:
        text = path.read_text()
        try:
            filled = fill(text, run)
        except MissingError as error:
            raise MissingError(f"{path.name} shows {error}, which the run does not have") from error
        if filled != text:
            changed[path] = filled
    return changed


if __name__ == "__main__":
    sys.exit(main())
