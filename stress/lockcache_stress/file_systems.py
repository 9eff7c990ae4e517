"""``lockcache-stress filesystems``: the byte scenarios on real file systems of every kind that can be mounted here."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from lockcache_stress.errors import UnusableError
from lockcache_stress.finishing import replay_line
from lockcache_stress.options import JSON, SEED, choose_seed
from lockcache_stress.outcome import Outcome
from lockcache_stress.places import mounted_image, needs_mounts, run_quietly
from lockcache_stress.report import print_json, print_outcome, showing
from lockcache_stress.scenarios import BYTE_SCENARIOS
from lockcache_stress.session import Options, Show, run_bytes
from lockcache_stress.workspace import mounted_tmpfs

__all__ = ["FILE_SYSTEMS", "filesystems_command"]

_SCENARIOS: Final = {scenario.name: scenario for scenario in BYTE_SCENARIOS}


@contextmanager
def _tmpfs(path: str) -> Iterator[None]:
    with mounted_tmpfs(path, "256m") as is_mounted:
        if not is_mounted:
            raise UnusableError("a tmpfs cannot be mounted here")
        yield


@contextmanager
def _overlay(path: str) -> Iterator[None]:
    """As a container has it: an upper layer over one that is read-only."""
    layers = f"{path}-layers"
    os.mkdir(layers)
    try:
        with _tmpfs(layers):
            lower, upper, work = (os.path.join(layers, name) for name in ("lower", "upper", "work"))
            for folder in (lower, upper, work):
                os.mkdir(folder, 0o700)
            options = f"lowerdir={lower},upperdir={upper},workdir={work}"
            run_quietly("mount", "-t", "overlay", "-o", options, "lockcache-stress", path)
            try:
                yield
            finally:
                subprocess.run(["umount", "-l", path], check=False, capture_output=True)
    finally:
        os.rmdir(layers)


def _image(kind: str, size_mib: int, *options: str) -> Callable[[str], AbstractContextManager[object]]:
    return partial(_mount_image, kind, size_mib, options)


def _mount_image(kind: str, size_mib: int, options: tuple[str, ...], path: str) -> AbstractContextManager[object]:
    return mounted_image(path, kind, size_mib, *options)


#: How each is mounted at a path. The sizes are the smallest that mkfs makes and the scenarios fit into.
FILE_SYSTEMS: Final[dict[str, Callable[[str], AbstractContextManager[object]]]] = {
    "ext4": _image("ext4", 128),
    "xfs": _image("xfs", 320),
    "btrfs": _image("btrfs", 256, "-q"),
    "tmpfs": _tmpfs,
    "overlayfs": _overlay,
}


@dataclass
class _Tried:
    """One file system."""

    outcomes: list[Outcome] = field(default_factory=list)
    #: Why it could not be had.
    skipped: str | None = None

    @property
    def ok(self) -> bool:
        return all(outcome.ok for outcome in self.outcomes)

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"ok": self.ok, "skipped": self.skipped, "scenarios": [each.as_json() for each in self.outcomes]}


@click.command("filesystems", short_help="the byte scenarios on ext4, xfs, btrfs, tmpfs and overlayfs")
@click.argument("names", nargs=-1, type=click.Choice(list(FILE_SYSTEMS)))
@click.option("--scenario", "chosen", multiple=True, type=click.Choice(list(_SCENARIOS)), help="Only this. [all]")
@click.option("--seconds", type=click.FloatRange(0.1, 1e6), default=60.0, show_default=True, help="For all of them.")
@SEED
@JSON
def filesystems_command(
    names: tuple[str, ...], chosen: tuple[str, ...], seconds: float, seed: int | None, as_json: bool
) -> int:
    """Mount each file system from an image of its own (root only) and run the byte scenarios on it, sharing --seconds.

    NAMES are the file systems; all by default. One that cannot be had here is skipped, with the reason.

    \b
    lockcache-stress filesystems xfs --scenario same-key --seconds 10
    """
    wanted, scenarios = names or tuple(FILE_SYSTEMS), chosen or tuple(_SCENARIOS)
    share = seconds / len(wanted) / len(scenarios)
    with showing() as show:
        tried = {name: _try(name, scenarios, share, choose_seed(seed), show) for name in wanted}
    if as_json:
        ok = all(each.ok for each in tried.values())
        print_json({"ok": ok, "file_systems": {name: each.as_json() for name, each in tried.items()}})
    else:
        _print(tried, scenarios)
    return 0 if all(each.ok for each in tried.values()) else 1


def _try(name: str, scenarios: Sequence[str], seconds: float, seed: int, show: Show) -> _Tried:
    reason = needs_mounts()
    if reason is not None:
        return _Tried(skipped=reason)
    tried = _Tried()
    with tempfile.TemporaryDirectory(prefix="lockcache-stress-") as parent:
        path = os.path.join(parent, "disk")
        os.mkdir(path)
        try:
            with FILE_SYSTEMS[name](path):
                for number, each in enumerate(scenarios):
                    show(name, number / len(scenarios), each)
                    tried.outcomes.append(_run(each, os.path.join(path, each), seconds, seed))
        except UnusableError as error:
            tried.skipped = str(error)
    show(name, 1.0, "")
    return tried


def _run(name: str, directory: str, seconds: float, seed: int) -> Outcome:
    scenario = _SCENARIOS[name]
    options = Options(scenario.processes, seconds, scenario.max_size_bytes, seed, directory=directory)
    return run_bytes(scenario, options, lambda stage, share, words: None)


def _print(tried: dict[str, _Tried], scenarios: Sequence[str]) -> None:
    for each in tried.values():
        for outcome in each.outcomes:
            if not outcome.ok:
                print_outcome(outcome, replay_line(outcome))
    table = Table(title="the byte scenarios on each file system", title_justify="left")
    table.add_column("scenario")
    for name in tried:
        table.add_column(name)
    for number, scenario in enumerate(scenarios):
        table.add_row(scenario, *(_verdict(each, number) for each in tried.values()))
    console = Console()
    console.print(table)
    for name, each in tried.items():
        if each.skipped is not None:
            console.print(f"{name}: skipped: {each.skipped}", markup=False)


def _verdict(tried: _Tried, number: int) -> str:
    if number >= len(tried.outcomes):
        return "[yellow]--[/]"
    outcome = tried.outcomes[number]
    return f"[green]ok[/] {outcome.totals['operations']:,}" if outcome.ok else "[bold red]NO[/]"
