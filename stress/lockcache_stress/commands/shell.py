"""The shell of the commands that are not a scenario: the options that all have, and what becomes of what is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

from lockcache_stress.commands.options import JSON, SEED, choose_seed, reporting
from lockcache_stress.report import Files, Ran, Written, finishing, print_json, print_tabled, showing
from lockcache_stress.run import Show, Tabled

__all__ = ["Shell", "with_shell"]


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
        """Print and leave at the block's end what ``make`` gives by then; see :func:`~.finish.finishing`.

        ``as_json`` returns what ``--json`` prints, and ``show_text`` prints what is printed without it. ``is_quiet``:
        nothing else may be printed.
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
        """The same for a command of one run, which ``found`` grows with: so many of ``what``."""

        def make() -> Written:
            runs = [Ran(tabulate(), replay)] if found else []
            return Written(f"lockcache-stress {self.name}", runs, {}, skipped)

        with self.running(make, as_json, lambda: f"{len(found)} {what}", **printing) as show:
            yield show


def with_shell(
    name: str, *, is_seeded: bool = True, files: Callable[[dict[str, Any]], Files] | None = None
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Add the options ``--seed`` (if the command draws anything), ``--json``, ``--report`` and ``--junit``.

    The command gets a :class:`Shell` in their place. ``files`` makes its files of its other options instead.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def run(as_json: bool, seed: int | None = None, **given: Any) -> int:
            left = Files(given.pop("report"), given.pop("junit")) if files is None else files(given)
            return command(Shell(name, left, as_json, choose_seed(seed)), **given)

        shelled = JSON(reporting(run) if files is None else run)
        return SEED(shelled) if is_seeded else shelled

    return decorate
