# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress remote``, with click."""

from __future__ import annotations

from typing import Any

import click

from lockcache.cli.options import parsed_by
from lockcache.sizes import parse_count
from lockcache_stress.commands.shell import IF_POSSIBLE, MOST_PROCESSES, SECONDS, Shell, some_of, with_shell
from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.remote import ALONE, SCENARIOS, FleetOptions, run_remote, why_no_fleet
from lockcache_stress.report import Ran, Written
from lockcache_stress.run import Grid, GridRow, Tabled
from lockcache_stress.servers import KINDS


@click.command("remote", short_help="four nodes in namespaces and a real server: cold starts, deaths, restarts")
@click.option(
    "--servers",
    callback=parsed_by(some_of(KINDS)),
    metavar="A,B",
    default=",".join(KINDS),
    show_default=True,
    help="Kinds, with commas between.",
)
@click.option(
    "--scenarios",
    callback=parsed_by(some_of(SCENARIOS)),
    metavar="A,B",
    default="cold,takeover,restarts",
    show_default=True,
    help="And checked, each read against the promises; distant, behind 50 ms; million, a Valkey that evicts; peers.",
)
@click.option(
    "--processes", type=click.IntRange(1, MOST_PROCESSES), default=8, show_default=True, help="On each of four nodes."
)
@click.option("--kernels", type=click.IntRange(1, 1000), default=8, show_default=True, help="Each process wants all.")
@click.option("--keys", callback=parsed_by(parse_count), default="1M", show_default=True, help="Of million.")
@click.option("--seconds", type=SECONDS, default=10.0, show_default=True, help="Of restarts.")
@click.option("--checked-seconds", type=SECONDS, default=20.0, show_default=True, help="Of checked, on each server.")
@IF_POSSIBLE
@with_shell("remote")
def remote_command(shell: Shell, if_possible: bool, **given: Any) -> int:
    """Run a fleet on a real server: Valkey, SeaweedFS as S3, nginx as an HTTP cache (root only).

    Nodes and server are network namespaces with an address each; every node has a directory of its own, with the server
    behind it. Cold: all processes want the same new kernels, which NVRTC compiles: each once for all nodes, or over
    HTTP, which has no leases, once for each node. Takeover: the process that compiles is killed. Restarts: the server
    is killed and started again every two seconds.

    \b
    lockcache-stress remote
    lockcache-stress remote --servers valkey --scenarios million
    LOCKCACHE_WEED=/opt/weed lockcache-stress remote --servers s3 --report s3.html
    """
    options = FleetOptions(seed=shell.seed, **given)
    found: list[Tabled] = []
    skipped: list[tuple[str, str]] = []
    words = ["--servers", ",".join(options.servers), "--scenarios", ",".join(options.scenarios)]
    words += ["--processes", str(options.processes), "--kernels", str(options.kernels)]

    def make() -> Written:
        runs = [Ran(each, shell.replay(*words)) for each in found]
        grids = [_grid(found)] if found else []
        return Written("lockcache-stress remote", runs, {}, skipped, grids=grids)

    def as_json(written: Written) -> dict[str, Any]:
        trials = [each.as_json() for each in found]
        return {"ok": written.ok, "seed": shell.seed, "skipped": dict(skipped), "trials": trials}

    reason = None if set(options.scenarios) <= set(ALONE) else why_no_fleet()
    if reason is not None and not if_possible:
        raise UnusableError(f"remote cannot be run here: {reason}")
    with shell.running(make, as_json, lambda: f"{len(found)} trials") as show:
        if reason is None:
            run_remote(options, found, skipped, show)
        else:
            skipped.append(("remote", reason))
    return shell.code


def _grid(found: list[Tabled]) -> Grid:
    rows = [
        GridRow([each.name, check.name, check.value, check.must], check.ok) for each in found for check in each.checks()
    ]
    return Grid("a fleet on a real server", ("trial", "what", "found", "must be"), rows)
