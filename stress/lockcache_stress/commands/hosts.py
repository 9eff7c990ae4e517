# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress hosts``, with click."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from lockcache.cli.options import parsed_by
from lockcache_stress.commands.shell import IF_POSSIBLE, Shell, some_of, with_shell
from lockcache_stress.errors import UnusableError
from lockcache_stress.hosts import TRIALS, HostsOptions, Tried, prepare_guest, run_hosts, trials_of
from lockcache_stress.report import Files, Ran, Written
from lockcache_stress.run import Grid, GridRow, Show, Tabled

_FOLDER: Final = click.Path(file_okay=False)
_NAMES: Final = {"juicefs": "JuiceFS", "glusterfs": "GlusterFS"}


@click.command("hosts", short_help="two hosts and one directory on NFS, JuiceFS or GlusterFS: real server, two clients")
@click.option("--nfs", is_flag=True, help="The kernel's NFS, server and clients, in qemu.")
@click.option("--juicefs", is_flag=True, help="JuiceFS with names in Redis or Valkey, in namespaces.")
@click.option("--glusterfs", is_flag=True, help="A GlusterFS volume of one brick, in namespaces.")
@click.option("--nfs-version", type=click.Choice(["4.2", "3"]), help="[4.2]")
@click.option("--lock-manager/--no-lock-manager", default=None, help="Of NFS 3: with or without locks. [with]")
@click.option("--mount-options", default="", metavar="A=1,B=2", help="Of the clients; with a dot: of Gluster's volume.")
@click.option(
    "--scenarios", callback=parsed_by(some_of(TRIALS)), metavar="A,B", help="Only these, with commas between. [all]"
)
@click.option(
    "--checkout", type=click.Path(exists=True, file_okay=False), help="Test the code of this one. [this program's]"
)
@click.option("--out", type=_FOLDER, metavar="DIR", help="Leave the guest's console and the results as they came.")
@click.option("--json-file", type=click.Path(dir_okay=False), metavar="FILE.json", help="Leave the JSON there too.")
@IF_POSSIBLE
@with_shell(
    "hosts",
    files=lambda given: Files(given.pop("report"), given.pop("junit"), numbers=given.pop("json_file")),
)
def hosts_command(
    shell: Shell,
    nfs: bool,
    juicefs: bool,
    glusterfs: bool,
    nfs_version: str | None,
    lock_manager: bool | None,
    scenarios: tuple[str, ...] | None,
    if_possible: bool,
    **given: Any,
) -> int:
    """Serve a directory to two clients by a real file system, and run trials on both (root only).

    The clients have a network and a host name each; caches and locks are two hosts'. NFS runs in a guest, whose kernel
    is Debian's package, fetched once by apt; the others, which are FUSE, in namespaces of this machine. Nothing is left
    of either. Times are judged only where seconds are what is promised.

    \b
    lockcache-stress hosts --nfs
    lockcache-stress hosts --juicefs --scenarios herd,cap --report hosts.html
    """
    file_system = _only_one(nfs=nfs, juicefs=juicefs, glusterfs=glusterfs)
    if file_system != "nfs" and (nfs_version is not None or lock_manager is not None):
        raise click.UsageError("--nfs-version and --lock-manager are for --nfs")
    trials = _trials(file_system, scenarios)
    options = HostsOptions(
        trials, file_system, nfs_version or "4.2", lock_manager is not False, seed=shell.seed, **given
    )
    make = _Making([], options)
    with shell.running(make, lambda _: make.as_json(), make.ended) as show:
        make.run(show)
    if make.skipped is not None and not if_possible:
        raise UnusableError(f"hosts cannot be run here: {make.skipped}")
    return shell.code


def _only_one(**chosen: bool) -> str:
    names = [name for name, is_chosen in chosen.items() if is_chosen]
    if len(names) != 1:
        raise click.UsageError("choose one of --nfs, --juicefs, --glusterfs")
    return names[0]


def _trials(file_system: str, scenarios: tuple[str, ...] | None) -> tuple[str, ...]:
    all_of_them = trials_of(file_system)
    if not set(scenarios or ()) <= set(all_of_them):
        raise click.UsageError("the scenarios calls and fleet count the requests of an NFS client: only with --nfs")
    return scenarios or all_of_them


class _Making:
    """Makes the report of the trials that have ended so far."""

    def __init__(self, tried: list[Tried], options: HostsOptions) -> None:
        self._tried, self._options = tried, options
        #: The reason why no trial was run.
        self.skipped: str | None = None

    def run(self, show: Show) -> None:
        """Run the trials, or note why they cannot be run here."""
        try:
            start = prepare_guest(self._options, show)
        except UnusableError as error:
            self.skipped = str(error)
        else:
            self._tried.extend(run_hosts(start, self._options, show))

    def ended(self) -> str:
        """Returns the number of trials that have ended, in words."""
        return f"{len(self._tried)} trials"

    @property
    def place(self) -> str:
        """Returns the file system in words."""
        options = self._options
        name = _NAMES.get(options.file_system, f"NFS {options.nfs_version}")
        if name == "NFS 3":
            name += f" with{'' if options.lock_manager else 'out'} a lock manager"
        return name + (f", {options.mount_options}" if options.mount_options else "")

    def __call__(self) -> Written:
        runs = [Ran(_tabled(each, self.place), self._replay([each.name])) for each in self._tried]
        skipped = [] if self.skipped is None else [("hosts", self.skipped)]
        grids = [self._grid()] if runs else []
        return Written(f"lockcache-stress hosts: {self.place}", runs, {}, skipped, grids=grids, numbers=self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Returns the output of ``--json`` and ``--json-file``."""
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
        words = ["lockcache-stress", "hosts", f"--{options.file_system}"]
        if options.file_system == "nfs":
            words += ["--nfs-version", options.nfs_version]
            words += [] if options.lock_manager else ["--no-lock-manager"]
        words += ["--mount-options", options.mount_options] if options.mount_options else []
        words += ["--scenarios", ",".join(trials), "--seed", str(options.seed)]
        return words + (["--checkout", options.checkout] if options.checkout else [])

    def _grid(self) -> Grid:
        rows = [
            GridRow([each.name, check.name, check.value, check.must], check.ok)
            for each in self._tried
            for check in each.checks
        ]
        return Grid(f"two hosts on {self.place}", ("trial", "what", "found", "must be"), rows)


def _tabled(each: Tried, place: str) -> Tabled:
    return Tabled(
        name=each.name,
        title=f"{each.name} on two hosts, {place}",
        lines=each.checks,
        numbers={"seconds": each.seconds, "numbers": each.numbers},
        counts=[f"{each.seconds:.0f} s"],
        findings=[{"error": each.error}] if each.error else [],
    )
