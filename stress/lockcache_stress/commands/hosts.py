"""``lockcache-stress hosts``, with click."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from lockcache_stress.commands.options import IF_POSSIBLE, JSON, SEED, choose_seed, reporting
from lockcache_stress.errors import UnusableError
from lockcache_stress.hosts import TRIALS, Boot, HostsOptions, Tried, prepare_guest, run_hosts, why_no_hosts
from lockcache_stress.report import (
    Files,
    Grid,
    GridRow,
    Ran,
    Tabled,
    Written,
    finishing,
    print_json,
    print_tabled,
    showing,
)
from lockcache_stress.run import Show

__all__ = ["hosts_command"]

_FOLDER: Final = click.Path(file_okay=False)


class _Trials(click.ParamType[tuple[str, ...]]):
    name = "a,b"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(value.split(",") if isinstance(value, str) else value))
        for name in names:
            if name not in TRIALS:
                self.fail(f"{name!r} is none of {', '.join(TRIALS)}", param, ctx)
        return names


@click.command("hosts", short_help="two hosts and one directory on NFS: a real kernel, server and two clients in qemu")
@click.option("--nfs", is_flag=True, required=True, help="The kernel's NFS: server and clients.")
@click.option("--nfs-version", type=click.Choice(["4.2", "3"]), default="4.2", show_default=True)
@click.option("--lock-manager/--no-lock-manager", default=True, help="Of NFS 3: with or without locks. [with]")
@click.option("--scenarios", type=_Trials(), default=",".join(TRIALS), help="Only these, with commas between. [all]")
@click.option(
    "--checkout", type=click.Path(exists=True, file_okay=False), help="Test the code of this one. [this program's]"
)
@click.option("--out", type=_FOLDER, metavar="DIR", help="Leave the guest's console and the results as they came.")
@click.option("--json-file", type=click.Path(dir_okay=False), metavar="FILE.json", help="Leave the JSON there too.")
@IF_POSSIBLE
@SEED
@JSON
@reporting
def hosts_command(
    nfs: bool,
    nfs_version: str,
    lock_manager: bool,
    scenarios: tuple[str, ...],
    checkout: str | None,
    out: str | None,
    json_file: str | None,
    if_possible: bool,
    seed: int | None,
    as_json: bool,
    report: str | None,
    junit: str | None,
) -> int:
    """Boot a kernel in qemu that serves a directory by NFS to two clients of its own; run trials on both (root only).

    The clients have a network and a host name each; caches, leases and locks are two hosts'. Kernel and modules are
    Debian's package, fetched once by apt. Nothing is left of the guest. Times are of the guest's clock, and judged only
    where seconds are what is promised.

    \b
    lockcache-stress hosts --nfs
    lockcache-stress hosts --nfs --scenarios herd,calls --report hosts.html
    """
    files = Files(report, junit, numbers=json_file)
    options = HostsOptions(scenarios, nfs_version, lock_manager, choose_seed(seed), out, checkout)
    tried: list[Tried] = []
    make = _Making(tried, options)

    def tell(written: Written) -> None:
        if as_json:
            print_json(make.as_json())
        else:
            print_tabled(written)

    with finishing(make, tell, files, lambda: f"{len(tried)} trials", as_json=as_json) as finished, showing() as show:
        boot, make.skipped = _prepare(options, show)
        if boot is not None:
            tried.extend(run_hosts(boot, options, show))
    if make.skipped is not None and not if_possible:
        raise UnusableError(f"hosts cannot be run here: {make.skipped}")
    return finished.code


def _prepare(options: HostsOptions, show: Show) -> tuple[Boot | None, str | None]:
    """Returns what a guest boots from, or why it cannot be had."""
    why = why_no_hosts(options.nfs_version)
    if why is not None:
        return None, why
    try:
        return prepare_guest(show), None
    except UnusableError as error:
        return None, str(error)


class _Making:
    """Makes what is written of what has ended by then."""

    def __init__(self, tried: Sequence[Tried], options: HostsOptions) -> None:
        self._tried, self._options = tried, options
        #: Why nothing was run.
        self.skipped: str | None = None

    @property
    def place(self) -> str:
        """Returns the file system in words."""
        if self._options.nfs_version != "3":
            return f"NFS {self._options.nfs_version}"
        return f"NFS 3 with{'' if self._options.lock_manager else 'out'} a lock manager"

    def __call__(self) -> Written:
        runs = [Ran(_told(each, self.place), self._replay([each.name])) for each in self._tried]
        skipped = [] if self.skipped is None else [("hosts", self.skipped)]
        grids = [self._grid()] if runs else []
        return Written(f"lockcache-stress hosts: {self.place}", runs, {}, skipped, grids=grids, numbers=self.as_json())

    def as_json(self) -> dict[str, Any]:
        """For ``--json`` and ``--json-file``."""
        return {
            "ok": all(each.ok for each in self._tried),
            "file_system": self.place,
            "seed": self._options.seed,
            "skipped": self.skipped,
            "trials": [each.as_json() for each in self._tried],
            "replay": self._replay(self._options.trials),
        }

    def _replay(self, trials: Sequence[str]) -> list[str]:
        options = self._options
        words = ["lockcache-stress", "hosts", "--nfs", "--nfs-version", options.nfs_version]
        words += [] if options.lock_manager else ["--no-lock-manager"]
        words += ["--scenarios", ",".join(trials), "--seed", str(options.seed)]
        return words + (["--checkout", options.checkout] if options.checkout else [])

    def _grid(self) -> Grid:
        rows = [
            GridRow([each.name, check.name, check.value, check.must], check.ok)
            for each in self._tried
            for check in each.checks
        ]
        return Grid(f"two hosts on {self.place}", ("trial", "what", "found", "must be"), rows)


def _told(each: Tried, place: str) -> Tabled:
    return Tabled(
        name=each.name,
        title=f"{each.name} on two hosts, {place}",
        lines=each.checks,
        numbers={"seconds": each.seconds, "numbers": each.numbers},
        counts=[f"{each.seconds:.0f} s"],
        findings=[{"error": each.error}] if each.error else [],
    )
