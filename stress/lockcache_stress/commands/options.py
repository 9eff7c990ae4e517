"""The options that several commands share, with click."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from lockcache.sizes import SIZES_IN_WORDS, parse_size
from lockcache_stress.trouble import FAULTS

__all__ = [
    "IF_POSSIBLE",
    "JSON",
    "MOST_PROCESSES",
    "SECONDS",
    "SEED",
    "RealRange",
    "choose_seed",
    "common",
    "reporting",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])

MOST_PROCESSES: Final = 1024
SEED: Final = click.option(
    "--seed", type=click.IntRange(0), default=None, help="Replays the choices of an earlier run."
)
JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
#: Of commands that need what only root has.
IF_POSSIBLE: Final = click.option(
    "--if-possible", is_flag=True, help="Exit 0, and not 2, where none of it can be had here."
)

_FILE: Final = click.Path(dir_okay=False)
_REPORT: Final = click.option(
    "--report", type=_FILE, metavar="FILE.html", help="Leave a page with verdicts, numbers and plots."
)
_JUNIT: Final = click.option("--junit", type=_FILE, metavar="FILE.xml", help="Leave the checks as JUnit XML, for CI.")


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class RealRange(click.FloatRange):
    """A range of numbers: NaN, which is neither too small nor too large, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


#: How long something is to take.
SECONDS: Final = RealRange(0.1, 1e6)


def common(processes: int | None, max_size_bytes: int | None) -> Callable[[_Command], _Command]:
    """The options of every scenario."""
    options = [
        click.option("--seconds", type=SECONDS, default=10.0, show_default=True, help="How long."),
        SEED,
        JSON,
        reporting,
    ]
    if processes is not None:
        count = click.IntRange(1, MOST_PROCESSES)
        options += [
            click.option("--processes", type=count, default=processes, show_default=True, help="Spawned workers."),
            click.option("--max-size", type=_Size(), default=max_size_bytes, show_default=True, help=SIZES_IN_WORDS),
            click.option(
                "--directory", type=click.Path(file_okay=False), help="Use this directory, and leave it. [temporary]"
            ),
            click.option(
                "--plant",
                type=click.Choice(sorted(FAULTS)),
                help="Plant this fault, to see that it is found.",
            ),
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


def reporting(command: _Command) -> _Command:
    """The options ``--report`` and ``--junit``."""
    return _REPORT(_JUNIT(command))


def choose_seed(given: int | None) -> int:
    """The given seed, or a new one."""
    return random.SystemRandom().randrange(2**31) if given is None else given
