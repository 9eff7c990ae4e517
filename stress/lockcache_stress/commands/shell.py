# SPDX-License-Identifier: Apache-2.0
"""The shell of the commands: options that several have, with click, and printing and writing of what they find."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar

import click

from lockcache.cli.options import size
from lockcache.sizes import SIZES_IN_WORDS
from lockcache_stress.experiments import HerdOutcome
from lockcache_stress.report import (
    Files,
    Ran,
    Written,
    finishing,
    print_json,
    print_outcome,
    print_summary,
    print_tabled,
    showing,
)
from lockcache_stress.run import Outcome, Reportable, Show, Tabled
from lockcache_stress.trouble import FAULTS

_Command = TypeVar("_Command", bound=Callable[..., Any])

MOST_PROCESSES: Final = 1024
_SEED: Final = click.option(
    "--seed", type=click.IntRange(0), default=None, help="Replays the choices of an earlier run."
)
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
#: The option of scenarios for the directory of the cache.
DIRECTORY: Final = click.option(
    "--directory", type=click.Path(file_okay=False), help="Use this directory, and leave it. [temporary]"
)
#: The option of commands that need rights or programs that are often missing.
IF_POSSIBLE: Final = click.option(
    "--if-possible", is_flag=True, help="Exit 0, and not 2, where none of it can be had here."
)

_FILE: Final = click.Path(dir_okay=False)
_REPORT: Final = click.option(
    "--report", type=_FILE, metavar="FILE.html", help="Leave a page with verdicts, numbers and plots."
)
_JUNIT: Final = click.option("--junit", type=_FILE, metavar="FILE.xml", help="Leave the checks as JUnit XML, for CI.")


class RealRange(click.FloatRange):
    """A range of numbers without NaN, which is neither too small nor too large."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


#: A duration in seconds.
SECONDS: Final = RealRange(0.1, 1e6)


def plant_option(faults: Iterable[str]) -> Callable[[_Command], _Command]:
    """Returns the option ``--plant``, one of ``faults``."""
    return click.option("--plant", type=click.Choice(sorted(faults)), help="Plant this fault, to see that it is found.")


def some_of(known: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """Returns the parser of names of ``known``, with commas between."""

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(text.split(",")))
        for name in names:
            if name not in known:
                raise ValueError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


def common(processes: int | None, max_size_bytes: int | None) -> Callable[[_Command], _Command]:
    """Returns the options of every scenario, except for those that :func:`with_shell` adds."""
    options = [click.option("--seconds", type=SECONDS, default=10.0, show_default=True, help="How long.")]
    if processes is not None:
        count = click.IntRange(1, MOST_PROCESSES)
        options += [
            click.option("--processes", type=count, default=processes, show_default=True, help="Spawned workers."),
            click.option(
                "--max-size",
                type=str,
                callback=size,
                metavar="SIZE",
                default=None if max_size_bytes is None else f"{max_size_bytes}B",
                show_default=True,
                help=SIZES_IN_WORDS,
            ),
            DIRECTORY,
            plant_option(FAULTS),
            click.option(
                "--histories",
                type=click.Path(file_okay=False),
                metavar="DIR",
                help="Leave the recorded histories here, and a drawing of one that is illegal.",
            ),
            click.option("--fail-fast", is_flag=True, help="End at the first thing that is wrong."),
        ]

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@dataclass
class Shell:
    """One run of a command."""

    name: str
    files: Files
    as_json: bool
    seed: int = 0
    #: The exit code, once the command has run.
    code: int = 0

    def replay(self, *words: str) -> list[str]:
        """Returns the command that makes the same choices again."""
        return ["lockcache-stress", self.name, *words, "--seed", str(self.seed)]

    @contextmanager
    def running(
        self,
        make: Callable[[], Written],
        as_json: Callable[[Written], object],
        done: Callable[[], str],
        *,
        show_text: Callable[[Written], None] = print_tabled,
        is_quiet: bool = False,
    ) -> Iterator[Show]:
        """Print and write, at the end of the block, what ``make`` returns by then; see :func:`~.finish.finishing`.

        ``as_json`` returns the output of ``--json``, and ``show_text`` prints the output without it. ``is_quiet``: no
        other output is allowed.
        """

        def print_found(written: Written) -> None:
            if self.as_json:
                print_json(as_json(written))
            else:
                show_text(written)

        is_quiet |= self.as_json
        with finishing(make, print_found, self.files, done, as_json=is_quiet) as finished, showing() as show:
            yield show
        self.code = finished.code

    @contextmanager
    def finding(
        self,
        found: Sized,
        what: str,
        tabulate: Callable[[], Tabled],
        replay: Sequence[str],
        as_json: Callable[[Written], object],
        *,
        skipped: Sequence[tuple[str, str]] = (),
        **printing: Any,
    ) -> Iterator[Show]:
        """Print and write, like :meth:`running`, the findings of a command of one run; ``found`` counts ``what``."""

        def make() -> Written:
            runs = [Ran(tabulate(), replay)] if found else []
            return Written(f"lockcache-stress {self.name}", runs, {}, skipped)

        with self.running(make, as_json, lambda: f"{len(found)} {what}", **printing) as show:
            yield show

    @contextmanager
    def running_all(self, outcomes: Sequence[Reportable], skipped: Sequence[tuple[str, str]]) -> Iterator[Show]:
        """Print and write, like :meth:`running`, the ``outcomes`` of many runs, and the skipped ones with reasons."""

        def make() -> Written:
            runs = [Ran(outcome, replay_line(outcome)) for outcome in outcomes]
            return Written("lockcache-stress: all scenarios", runs, {}, skipped)

        def as_json(written: Written) -> dict[str, Any]:
            found = [outcome.as_json() for outcome in outcomes]
            return {"ok": written.ok, "skipped": dict(skipped), "scenarios": found}

        def show_text(written: Written) -> None:
            for ran in written.runs:
                if not ran.outcome.ok:
                    print_outcome(ran.outcome, ran.replay)
            print_summary(outcomes, skipped)

        with self.running(make, as_json, lambda: f"{len(outcomes)} scenarios", show_text=show_text) as show:
            yield show

    def run_one(
        self,
        run: Callable[[list[Reportable], Show], Reportable],
        replay: Callable[[Reportable], Sequence[str]],
    ) -> int:
        """Run one scenario. Returns the exit code.

        The run may add its outcome to the list that it gets, to be reported if it is interrupted: a run in rounds adds
        its outcome after its first round, and then extends it.
        """
        outcomes: list[Reportable] = []

        def make() -> Written:
            runs = [Ran(each, replay(each)) for each in outcomes]
            return Written(runs[0].title if runs else "", runs, {})

        def as_json(written: Written) -> dict[str, Any]:
            return {**outcomes[0].as_json(), "replay": list(written.runs[0].replay)}

        def done() -> str:
            return f"{sum(len(each.rounds) for each in outcomes if isinstance(each, Outcome))} rounds"

        def show_text(written: Written) -> None:
            print_outcome(outcomes[0], written.runs[0].replay)

        with self.running(make, as_json, done, show_text=show_text) as show:
            outcomes[:] = [run(outcomes, show)]
        return self.code


def with_shell(
    name: str,
    *,
    is_seeded: bool = True,
    reports: bool = True,
    files: Callable[[dict[str, Any]], Files] = lambda given: Files(given.pop("report"), given.pop("junit")),
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Add the options ``--seed`` (if the command draws anything), ``--json``, ``--report`` and ``--junit``.

    The command gets a :class:`Shell` in their place. ``files`` makes the files of the command's options, and removes
    the options that the command need not know.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def run(as_json: bool, seed: int | None = None, **given: Any) -> int:
            chosen = random.SystemRandom().randrange(2**31) if seed is None else seed
            return command(Shell(name, files(given), as_json, chosen), **given)

        shelled = _JSON(_REPORT(_JUNIT(run)) if reports else run)
        return _SEED(shelled) if is_seeded else shelled

    return decorate


def replay_line(outcome: Reportable, directory: str | None = None, more: Sequence[str] = ()) -> list[str]:
    """Returns the command that makes the same choices again; empty if there is none."""
    if isinstance(outcome, Outcome):
        plan = outcome.plan
        words = [plan.scenario, "--processes", str(plan.processes), "--seconds", f"{plan.seconds:g}"]
        words += ["--max-size", f"{plan.max_size_bytes}B", "--seed", str(plan.seed), *more]
        words += ["--plant", plan.plant] if plan.plant else []
    elif isinstance(outcome, HerdOutcome):
        options = outcome.plan.options
        words = ["herd", "--processes", str(options.processes), "--kernels", str(options.kernels)]
        words += ["--seed", str(options.seed), *(["--plant", options.plant] if options.plant else [])]
        words += ["--uncached"] if options.uncached else []
        directory = options.directory
    else:
        return []
    return ["lockcache-stress", *words, *(["--directory", os.path.abspath(directory)] if directory else [])]
