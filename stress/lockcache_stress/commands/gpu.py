# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress gpu``, with click."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import click

from lockcache_stress.commands.shell import MOST_PROCESSES, SECONDS, Shell, plant_option, with_shell
from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.gpu_kit import ROWS, Found, KitOptions, run_rows
from lockcache_stress.gpu import NOT_INSTALLED, describe_gpu, describe_machine, describe_versions, find_arch
from lockcache_stress.report import Files, Ran, Written, print_tabled
from lockcache_stress.run import Grid, GridRow
from lockcache_stress.trouble import CACHE_FAULTS, HERD_FAULTS

_NAME: Final = "gpu"
_SECONDS: Final = 300.0
_PROCESSES: Final = 16
_FOLDER: Final = "gpu-report"
_COLUMNS: Final = ("row", "what it did", "compiles", "launches", "wrong", "seconds", "not done", "verdict")
_NO_GPU: Final = "no GPU: nothing was launched"


@click.command("gpu", short_help="what is promised, on a real GPU in a few minutes: compile, hit, load, launch, check")
@click.argument("names", nargs=-1, type=click.Choice(list(ROWS)))
@click.option("--seconds", type=SECONDS, default=_SECONDS, show_default=True, help="Shared by the rows.")
@click.option(
    "--processes", type=click.IntRange(1, MOST_PROCESSES), default=_PROCESSES, show_default=True, help="Of each row."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default=_FOLDER,
    show_default=True,
    help="Leave gpu.txt, gpu.json, gpu.html and gpu.xml (JUnit) there.",
)
@plant_option({*CACHE_FAULTS, *HERD_FAULTS})
@with_shell(_NAME, reports=False, files=lambda given: Files(out=(given["out"], _NAME)))
def gpu_command(
    shell: Shell, names: tuple[str, ...], seconds: float, processes: int, out: str, plant: str | None
) -> int:
    """Compile, hit, load, launch and check on the first GPU, a row for each promise, and leave a report.

    NAMES are the rows; all by default. Without a GPU all but the launches is done. Each row says what it
    could not do here. Exit code 1 if anything torn, stale, foreign or wrong was seen.

    \b
    lockcache-stress gpu
    lockcache-stress gpu timing lto-ir --seconds 20 --out /tmp/report
    PYTHONPATH=.:daemon:stress python -m lockcache_stress gpu --seconds 300 --out report
    """
    options = KitOptions(seconds, processes, shell.seed, tuple(dict.fromkeys(names)), plant)
    rows: list[Found] = []
    skipped: list[tuple[str, str]] = []
    make = _Making(options, os.path.abspath(out), rows, skipped)

    def as_json(written: Written) -> dict[str, Any]:
        return {"ok": written.ok, **(written.numbers or {})}

    def show_text(written: Written) -> None:
        print_tabled(replace(written, skipped=()))  # the skipped rows are in the table

    with shell.running(make, as_json, lambda: f"{len(rows)} rows", show_text=show_text) as show:
        rows.extend(run_rows(options, skipped, show))
    if not rows:
        raise UnusableError(f"gpu cannot be run here: {'; '.join(f'{name}: {reason}' for name, reason in skipped)}")
    return shell.code


class _Making:
    """Makes the report of the rows that have run so far."""

    def __init__(
        self,
        options: KitOptions,
        out: str,
        rows: Sequence[Found],
        skipped: Sequence[tuple[str, str]],
    ) -> None:
        self._options, self._out = options, out
        self._versions = describe_versions()
        self._machine = {**describe_gpu(), **self._versions, **describe_machine(tempfile.gettempdir())}
        self._rows, self._skipped = rows, skipped
        self._has_gpu = find_arch() is not None

    def __call__(self) -> Written:
        words = self._replay()
        runs = [self._ran(found) for found in self._rows]
        return Written(
            title=f"lockcache-stress gpu: {self._machine['GPU'] if self._has_gpu else 'without a GPU'}",
            runs=runs,
            machine=self._machine,
            skipped=self._skipped,
            grids=[self._grid()],
            numbers=self._numbers(words),
        )

    def _ran(self, found: Found) -> Ran:
        """Returns the run of a row, with the row's name, because several rows may run one scenario."""
        place = "" if found.outcome.name == found.row else found.row
        return Ran(found.outcome, self._replay(found.row), place)

    def _grid(self) -> Grid:
        what = self._machine["GPU"] if self._has_gpu else _NO_GPU
        versions = [f"{name} {version}" for name, version in self._versions.items() if version != NOT_INSTALLED]
        title = "; ".join([what, f"driver {self._machine['driver']}", ", ".join(versions)])
        by_name = {found.row: _cells(found) for found in self._rows}
        nothing = ["", "--", "--", "--", "--"]
        by_name |= {name: GridRow([name, *nothing, f"not run: {reason}", "--"]) for name, reason in self._skipped}
        names = [name for name in ROWS if name in by_name]
        return Grid(title, _COLUMNS, [by_name[name] for name in names], judges_rows=False)

    def _numbers(self, words: Sequence[str]) -> dict[str, Any]:
        return {
            "gpu": self._has_gpu,
            "machine": self._machine,
            "seed": self._options.seed,
            "rows": [found.as_json() for found in self._rows],
            "not_run": dict(self._skipped),
            "replay": list(words),
        }

    def _replay(self, name: str | None = None) -> list[str]:
        options = self._options
        names = options.names if name is None else (name,)
        words = ["lockcache-stress", "gpu", *names, "--seconds", f"{options.seconds:g}"]
        words += ["--processes", str(options.processes), "--seed", str(options.seed), "--out", self._out]
        return words + (["--plant", options.plant] if options.plant else [])


def _cells(found: Found) -> GridRow:
    counts = [_count(found.compiles), _count(found.launches), f"{found.wrong:,}", f"{found.seconds:.1f}"]
    verdict = "ok" if found.outcome.ok else "NO"
    return GridRow([found.row, found.did, *counts, "; ".join(found.notes), verdict], found.outcome.ok)


def _count(count: int | None) -> str:
    return "--" if count is None else f"{count:,}"
