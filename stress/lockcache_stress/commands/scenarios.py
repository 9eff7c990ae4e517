# SPDX-License-Identifier: Apache-2.0
"""The commands and their options, with click. Needs the ``cli`` extra."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import click

from lockcache import __version__
from lockcache.cli.signals import give_up_stdout
from lockcache.cli.usage import usage_in_words
from lockcache.errors import LockcacheError
from lockcache.lowlevel import SHARDS, Layout, count_shard, is_cache
from lockcache.sizes import counted
from lockcache_stress.commands.bench import bench_command
from lockcache_stress.commands.bugs import bugs_command
from lockcache_stress.commands.crash_states import crash_states_command
from lockcache_stress.commands.demo import demo_command
from lockcache_stress.commands.file_systems import filesystems_command
from lockcache_stress.commands.fleet import fleet_command
from lockcache_stress.commands.gpu import gpu_command
from lockcache_stress.commands.hosts import hosts_command
from lockcache_stress.commands.keys import keys_command
from lockcache_stress.commands.kill_table import kill_table_command
from lockcache_stress.commands.model import model_command
from lockcache_stress.commands.power_cut import power_cut_command
from lockcache_stress.commands.remote import remote_command
from lockcache_stress.commands.schedules import schedules_command
from lockcache_stress.commands.shell import (
    DIRECTORY,
    MOST_PROCESSES,
    Shell,
    common,
    plant_option,
    replay_line,
    with_shell,
)
from lockcache_stress.commands.simulate import simulate_command
from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments import HerdOptions, HostsOptions, run_herd, run_on_hosts
from lockcache_stress.gpu import has_nvrtc
from lockcache_stress.plan import Scenario
from lockcache_stress.run import Options, Reportable, Show, run_bytes, run_nvrtc
from lockcache_stress.scenarios import BYTE_SCENARIOS, NVRTC_STEP, TROUBLE_SCENARIOS
from lockcache_stress.trouble import HERD_FAULTS

_Command = TypeVar("_Command", bound=Callable[..., Any])

_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_NVRTC_CAP_BYTES: Final = 24_000_000
_NVRTC_PROCESSES: Final = 8
_NVRTC_KERNELS: Final = 40
_HERD_PROCESSES: Final = 16
_HERD_KERNELS: Final = 8
# In the division of the time of `all`, NVRTC counts as much as so many byte scenarios.
_NVRTC_SHARE: Final = 4
_EVERY: Final = (*BYTE_SCENARIOS, *TROUBLE_SCENARIOS)


def run_command_line() -> int:
    """Parse ``sys.argv``, run, print. Returns the exit code."""
    try:
        code = cli.main(prog_name="lockcache-stress", standalone_mode=False)
        print(end="", flush=True)  # flushes while a full disk can still be reported; does nothing if stdout is closed
    except click.ClickException as error:
        message, context = error.format_message(), getattr(error, "ctx", None)
        is_help = context is not None and message == context.get_help()  # for a group without a command
        words = usage_in_words(error, sys.argv[1:]) if isinstance(error, click.UsageError) else message
        print(message if is_help else f"lockcache-stress: {words}", file=sys.stderr)
        return 2
    except click.Abort as error:
        raise KeyboardInterrupt from error
    except (UnusableError, LockcacheError, PermissionError, NotADirectoryError) as error:
        print(f"lockcache-stress: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise  # not a mistake of the user, so the whole traceback is shown
        where = "stdout, or the disk that it works on" if error.filename is None else os.fsdecode(error.filename)
        print(f"lockcache-stress: {error.strerror}: {where}", file=sys.stderr)
        give_up_stdout()
        return 1
    return code if isinstance(code, int) else 0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Try a cache directory with real processes, compilers and kills; every read is judged.

    \b
    Examples:
      lockcache-stress herd                          is each kernel compiled once?
      lockcache-stress nvrtc --with-daemon --seconds 60
      lockcache-stress kill --directory /shared/me   on this file system
      lockcache-stress all --seconds 600 --report found.html
      lockcache-stress bench hit put open            how fast, next to cuda.core
      lockcache-stress COMMAND --help                each command's own examples
    """


@cli.command("nvrtc", short_help="workers compile real CUDA C++ kernels on a miss")
@common(_NVRTC_PROCESSES, _NVRTC_CAP_BYTES)
@click.option(
    "--kernels",
    type=click.IntRange(1, 10_000),
    default=_NVRTC_KERNELS,
    show_default=True,
    help="Sources; each is compiled for several architectures.",
)
@click.option(
    "--gpu",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    help="Load, launch and check on the GPU.",
)
@click.option("--with-daemon", is_flag=True, help="Run lockcache-daemon on the directory.")
@with_shell("nvrtc")
def nvrtc_command(shell: Shell, kernels: int, gpu: str, with_daemon: bool, **given: Any) -> int:
    """Spawned workers choose kernels by Zipf, compile on a miss with NVRTC, read back, and compare every byte."""
    more = ["--kernels", str(kernels), "--gpu", gpu, *(["--with-daemon"] if with_daemon else [])]
    run = partial(run_nvrtc, NVRTC_STEP, kernels=kernels, gpu=gpu, with_daemon=with_daemon)
    return _run_in_rounds(shell, run, given, more)


@cli.command("herd", short_help="many processes want the same kernels at once: each is compiled once")
@click.option("--processes", type=click.IntRange(1, MOST_PROCESSES), default=_HERD_PROCESSES, show_default=True)
@click.option("--kernels", type=click.IntRange(1, 1000), default=_HERD_KERNELS, show_default=True)
@DIRECTORY
@plant_option(HERD_FAULTS)
@click.option("--uncached", is_flag=True, help="At last the same without the cache, to see what it saves.")
@with_shell("herd")
def herd_command(shell: Shell, **given: Any) -> int:
    """Spawned processes start at once and compile the same templated kernels with headers through lockcache.cuda.

    Each kernel must be compiled once, every process must get the reference's bytes and symbol mapping; then a header is
    changed, and all of that must hold again, with nothing stale.
    """
    options = HerdOptions(seed=shell.seed, **given)
    return shell.run_one(lambda _, show: run_herd(options, show), replay_line)


def _hosts_of(scenario: Scenario) -> Callable[[_Command], _Command]:
    if scenario.name != "mpi":
        return lambda command: command
    return click.option(
        "--hosts",
        type=click.IntRange(1, 16),
        default=1,
        show_default=True,
        help="More than one: --processes ranks on each of so many hosts, made of namespaces (root only), compile 8 "
        "kernels cold and warm; then ranks are killed in their turn. Takes as long as it takes.",
    )


def _add_byte_command(scenario: Scenario) -> None:
    long_help = sys.modules[scenario.make_step.__module__].__doc__

    @cli.command(scenario.name, short_help=scenario.help, help=long_help)
    @common(scenario.processes, scenario.max_size_bytes)
    @_hosts_of(scenario)
    @with_shell(scenario.name)
    def command(shell: Shell, hosts: int = 1, **given: Any) -> int:
        if hosts > 1:
            return _run_hosts(shell, HostsOptions(hosts, given["processes"], shell.seed, given["directory"]))
        return _run_in_rounds(shell, partial(run_bytes, scenario), given)


def _run_hosts(shell: Shell, options: HostsOptions) -> int:
    _refuse_a_cache(options.directory)
    words = shell.replay("--hosts", str(options.hosts), "--processes", str(options.ranks))
    words += ["--directory", options.directory] if options.directory else []
    return shell.run_one(lambda _, show: run_on_hosts(options, show), lambda _: words)


for _scenario in _EVERY:
    _add_byte_command(_scenario)


@cli.command("all", short_help="every scenario, sharing the time")
@common(None, None)
@with_shell("all")
def all_command(shell: Shell, seconds: float) -> int:
    """Run herd and nvrtc (where CUDA is installed) and every other scenario, sharing --seconds between them.

    The herd takes as long as it takes, and comes first.
    """
    outcomes: list[Reportable] = []
    reason = "cuda.core and NVRTC are not installed"
    skipped = [] if has_nvrtc() else [("herd", reason), ("nvrtc", reason)]
    skipped += [(each.name, why) for each in _EVERY if (why := each.why_not()) is not None]
    with shell.running_all(outcomes, skipped) as show:
        outcomes.extend(_run_all(seconds, shell.seed, show))
    return shell.code


def _run_all(seconds: float, seed: int, show: Show) -> Iterator[Reportable]:
    with_nvrtc = has_nvrtc()
    possible = [each for each in _EVERY if each.why_not() is None]
    share = seconds / (len(possible) + _NVRTC_SHARE * with_nvrtc)
    if with_nvrtc:
        yield run_herd(HerdOptions(_HERD_PROCESSES, _HERD_KERNELS, seed), show)
        options = Options(_NVRTC_PROCESSES, share * _NVRTC_SHARE, _NVRTC_CAP_BYTES, seed)
        yield run_nvrtc(NVRTC_STEP, options, kernels=_NVRTC_KERNELS, gpu="auto", with_daemon=False, show=show)
    for scenario in possible:
        yield run_bytes(scenario, Options(scenario.processes, share, scenario.max_size_bytes, seed), show)


cli.add_command(demo_command)
cli.add_command(fleet_command)
cli.add_command(simulate_command)
cli.add_command(bench_command)
cli.add_command(kill_table_command)
cli.add_command(filesystems_command)
cli.add_command(power_cut_command)
cli.add_command(schedules_command)
cli.add_command(crash_states_command)
cli.add_command(model_command)
cli.add_command(bugs_command)
cli.add_command(keys_command)
cli.add_command(gpu_command)
cli.add_command(hosts_command)
cli.add_command(remote_command)


def _run_in_rounds(
    shell: Shell, run: Callable[..., Reportable], given: dict[str, Any], more: Sequence[str] = ()
) -> int:
    _refuse_a_cache(given["directory"])
    options = Options(max_size_bytes=given.pop("max_size"), seed=shell.seed, **given)

    def begin(outcomes: list[Reportable], show: Show) -> Reportable:
        return run(replace(options, begun=outcomes.append), show=show)

    return shell.run_one(begin, lambda outcome: replay_line(outcome, options.directory, more))


def _refuse_a_cache(directory: str | None) -> None:
    """Refuse a directory that is a cache, because a run has a cap of its own, and would evict the entries there."""
    layout = Layout(os.path.abspath(directory or os.curdir))
    if directory is None or not is_cache(layout):
        return
    entries = sum(count_shard(layout, shard) for shard in range(SHARDS))
    if entries:
        raise click.UsageError(
            f"--directory {directory}: holds a cache of {counted(entries, 'entry')}, which this would evict; name a "
            "directory without one, or remove it if it is of an earlier run"
        )
