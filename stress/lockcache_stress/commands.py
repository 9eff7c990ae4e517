"""The commands and their options, with click. Needs the ``cli`` extra."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from lockcache.errors import LockcacheError
from lockcache.sizes import SIZES_IN_WORDS, parse_size
from lockcache_stress import nvrtc as compiler
from lockcache_stress.bench import MEASUREMENTS, run_bench
from lockcache_stress.bench.machine import describe_machine
from lockcache_stress.errors import UnusableError
from lockcache_stress.faults import FAULTS
from lockcache_stress.outcome import Outcome
from lockcache_stress.plan import Scenario
from lockcache_stress.report import print_bench, print_json, print_outcome, print_summary, showing
from lockcache_stress.scenarios import BYTE_SCENARIOS
from lockcache_stress.session import Options, run_bytes, run_nvrtc

__all__ = ["run_command_line"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

_MOST_PROCESSES: Final = 1024
_NVRTC_CAP_BYTES: Final = 24_000_000
_NVRTC_PROCESSES: Final = 8
_NVRTC_KERNELS: Final = 40
# Of the time that `all` is given, each byte scenario counts one and NVRTC as much as four.
_NVRTC_SHARE: Final = 4


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def run_command_line() -> int:
    """Parse ``sys.argv``, run, print; the exit code."""
    try:
        code = cli.main(prog_name="lockcache-stress", standalone_mode=False)
    except click.ClickException as error:
        print(f"lockcache-stress: {error.format_message()}", file=sys.stderr)
        return 2
    except click.Abort as error:
        raise KeyboardInterrupt from error
    except (UnusableError, LockcacheError, PermissionError, NotADirectoryError) as error:
        print(f"lockcache-stress: {error}", file=sys.stderr)
        return 2
    return code if isinstance(code, int) else 0


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False)
@click.version_option(package_name="lockcache")
def cli() -> None:
    """Real processes, real compilers and real SIGKILLs against one shared cache directory; every read is judged."""


def _common(processes: int | None, max_size_bytes: int | None) -> Callable[[_Command], _Command]:
    """The options of every scenario."""
    options = [
        click.option("--seconds", type=click.FloatRange(0.1, 1e6), default=10.0, show_default=True, help="How long."),
        click.option("--seed", type=click.IntRange(0), default=None, help="Replays the choices of an earlier run."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table."),
    ]
    if processes is not None:
        count = click.IntRange(1, _MOST_PROCESSES)
        options += [
            click.option("--processes", type=count, default=processes, show_default=True, help="Spawned workers."),
            click.option("--max-size", type=_Size(), default=max_size_bytes, show_default=True, help=SIZES_IN_WORDS),
            click.option(
                "--directory", type=click.Path(file_okay=False), help="Use this directory, and leave it. [temporary]"
            ),
            click.option(
                "--plant", type=click.Choice(sorted(FAULTS)), help="Plant this fault, to see that it is found."
            ),
            click.option("--fail-fast", is_flag=True, help="End at the first thing that is wrong."),
        ]

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@cli.command("nvrtc", short_help="workers compile real CUDA C++ kernels on a miss")
@_common(_NVRTC_PROCESSES, _NVRTC_CAP_BYTES)
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
def nvrtc_command(kernels: int, gpu: str, with_daemon: bool, as_json: bool, **given: Any) -> int:
    """Spawned workers choose kernels by Zipf, compile on a miss with NVRTC, read back, and compare every byte."""
    options = _options(given)
    with showing() as show:
        outcome = run_nvrtc(options, kernels=kernels, gpu=gpu, with_daemon=with_daemon, show=show)
    more = ["--kernels", str(kernels), "--gpu", gpu, *(["--with-daemon"] if with_daemon else [])]
    return _finish(outcome, options, as_json, more)


def _add_byte_command(scenario: Scenario) -> None:
    @cli.command(scenario.name, short_help=scenario.help, help=_long_help(scenario))
    @_common(scenario.processes, scenario.max_size_bytes)
    def command(as_json: bool, **given: Any) -> int:
        options = _options(given)
        with showing() as show:
            outcome = run_bytes(scenario, options, show)
        return _finish(outcome, options, as_json, [])


def _long_help(scenario: Scenario) -> str:
    return sys.modules[scenario.make_step.__module__].__doc__ or scenario.help


for _scenario in BYTE_SCENARIOS:
    _add_byte_command(_scenario)


@cli.command("all", short_help="every scenario, sharing the time")
@_common(None, None)
def all_command(seconds: float, seed: int | None, as_json: bool) -> int:
    """Run the NVRTC scenario (where CUDA is installed) and every byte scenario, sharing --seconds between them."""
    chosen = _seed(seed)
    has_nvrtc = compiler.is_installed()
    share = seconds / (len(BYTE_SCENARIOS) + _NVRTC_SHARE * has_nvrtc)
    outcomes = []
    with showing() as show:
        if has_nvrtc:
            options = Options(_NVRTC_PROCESSES, share * _NVRTC_SHARE, _NVRTC_CAP_BYTES, chosen)
            outcomes.append(run_nvrtc(options, kernels=_NVRTC_KERNELS, gpu="auto", with_daemon=False, show=show))
        for scenario in BYTE_SCENARIOS:
            options = Options(scenario.processes, share, scenario.max_size_bytes, chosen)
            outcomes.append(run_bytes(scenario, options, show))
    skipped = [] if has_nvrtc else [("nvrtc", "cuda.core and NVRTC are not installed")]
    return _finish_all(outcomes, skipped, as_json)


@cli.command("bench", short_help="this cache beside cuda.core's, as ratios")
@click.argument("names", nargs=-1, type=click.Choice(list(MEASUREMENTS)))
@click.option("--directory", type=click.Path(file_okay=False), help="Measure on this file system. [temporary]")
@click.option("--quick", is_flag=True, help="Few repetitions: to see it run, not to believe the numbers.")
@click.option("--no-fail", is_flag=True, help="Exit 0 also if something does not hold.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def bench_command(names: tuple[str, ...], directory: str | None, quick: bool, no_fail: bool, as_json: bool) -> int:
    """Measure this cache and cuda.core's in turns, print ratios, and say what must hold and whether it does.

    NAMES are the measurements to run; all by default.
    """
    with showing() as show:
        lines = run_bench(names or tuple(MEASUREMENTS), directory, quick=quick, show=show)
    machine = describe_machine(directory or tempfile.gettempdir())
    ok = all(line.ok for line in lines)
    if as_json:
        print_json({"machine": machine, "quick": quick, "ok": ok, "lines": [vars(line) for line in lines]})
    else:
        print_bench(machine, lines)
    return 0 if ok or no_fail else 1


def _finish(outcome: Outcome, options: Options, as_json: bool, more: list[str]) -> int:
    if as_json:
        print_json({**outcome.as_json(), "replay": _replay(outcome, options.directory, more)})
    else:
        print_outcome(outcome, _replay(outcome, options.directory, more))
    return 0 if outcome.ok else 1


def _finish_all(outcomes: list[Outcome], skipped: list[tuple[str, str]], as_json: bool) -> int:
    ok = all(outcome.ok for outcome in outcomes)
    if as_json:
        print_json({"ok": ok, "skipped": dict(skipped), "scenarios": [outcome.as_json() for outcome in outcomes]})
        return 0 if ok else 1
    for outcome in outcomes:
        if not outcome.ok:
            print_outcome(outcome, _replay(outcome, None, []))
    print_summary(outcomes, skipped)
    return 0 if ok else 1


def _options(given: dict[str, Any]) -> Options:
    return Options(
        processes=given["processes"],
        seconds=given["seconds"],
        max_size_bytes=given["max_size"],
        seed=_seed(given["seed"]),
        directory=given["directory"],
        plant=given["plant"],
        fail_fast=given["fail_fast"],
    )


def _seed(given: int | None) -> int:
    return random.SystemRandom().randrange(2**31) if given is None else given


def _replay(outcome: Outcome, directory: str | None, more: list[str]) -> list[str]:
    """The command that makes the same choices again."""
    plan = outcome.plan
    words = ["lockcache-stress", plan.scenario, "--processes", str(plan.processes), "--seconds", f"{plan.seconds:g}"]
    words += ["--max-size", str(plan.max_size_bytes), "--seed", str(plan.seed), *more]
    if plan.plant:
        words += ["--plant", plan.plant]
    if directory:
        words += ["--directory", os.path.abspath(directory)]
    return words
