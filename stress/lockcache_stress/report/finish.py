"""The end of runs: the verdict is printed, the files are written, the exit code is chosen."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from lockcache_stress.bench import describe_machine
from lockcache_stress.experiments.herd import HerdOptions, HerdOutcome
from lockcache_stress.report.files import Files
from lockcache_stress.report.terminal import print_json, print_outcome, print_summary, print_written
from lockcache_stress.report.written import Ran, Written
from lockcache_stress.run import Outcome, Reportable

__all__ = ["Finished", "finish_all", "finish_one", "finishing", "leave", "replay_line"]

_NOT_WRITTEN: Final = 2


@dataclass
class Finished:
    """How it ended."""

    code: int = 0


def finish_one(
    outcomes: Sequence[Reportable], replay: Callable[[Reportable], Sequence[str]], files: Files, *, as_json: bool
) -> AbstractContextManager[Finished]:
    """Print at the block's end what the one run in ``outcomes`` found; see :func:`finishing`.

    A run in rounds is there from its first round on, and grows.
    """

    def make() -> Written:
        runs = [Ran(each, replay(each)) for each in outcomes]
        return Written(runs[0].title if runs else "", runs, {})

    def show(written: Written) -> None:
        for ran in written.runs:
            if as_json:
                print_json({**ran.outcome.as_json(), "replay": list(ran.replay)})
            else:
                print_outcome(ran.outcome, ran.replay)

    def done() -> str:
        return f"{sum(len(each.rounds) for each in outcomes if isinstance(each, Outcome))} rounds"

    return finishing(make, show, files, done, as_json=as_json)


def finish_all(
    outcomes: Sequence[Reportable], skipped: Sequence[tuple[str, str]], files: Files, *, as_json: bool
) -> AbstractContextManager[Finished]:
    """Print at the block's end what is in ``outcomes`` by then; see :func:`finishing`."""

    def make() -> Written:
        runs = [Ran(outcome, replay_line(outcome)) for outcome in outcomes]
        return Written("lockcache-stress: all scenarios", runs, {}, skipped)

    def show(written: Written) -> None:
        if as_json:
            found = [outcome.as_json() for outcome in outcomes]
            print_json({"ok": written.ok, "skipped": dict(skipped), "scenarios": found})
            return
        for ran in written.runs:
            if not ran.outcome.ok:
                print_outcome(ran.outcome, ran.replay)
        print_summary(outcomes, skipped)

    return finishing(make, show, files, lambda: f"{len(outcomes)} scenarios", as_json=as_json)


@contextmanager
def finishing(
    make: Callable[[], Written],
    show: Callable[[Written], None],
    files: Files,
    done: Callable[[], str],
    *,
    as_json: bool,
) -> Iterator[Finished]:
    """Print and write at the block's end what ``make`` gives by then.

    What ends the block early (Ctrl-C, a scenario that cannot be run) is passed on, once the files hold what there is
    and say after how much of it (``done``, in words) that was: after an hour of a night nobody wants to have nothing.
    """
    finished = Finished()
    try:
        yield finished
    except BaseException as error:
        if files.paths and make().runs:
            why = f"ended by {type(error).__name__} after {done()} {error}".rstrip()
            leave(files, replace(_on_machine(make(), files), cut_short=why), as_json=as_json)
        raise
    written = make()
    show(written)
    finished.code = leave(files, _on_machine(written, files), as_json=as_json)


def leave(files: Files, written: Written, *, as_json: bool) -> int:
    """Write the files; the exit code. One that cannot be written is an error of its own, and hides no verdict."""
    code = 0 if written.ok else 1
    try:
        files.write(written)
    except OSError as error:
        print(f"lockcache-stress: not written: {error.filename or ', '.join(files.paths)}: {error}", file=sys.stderr)
        return code or _NOT_WRITTEN
    if not as_json:
        print_written(files.paths)
    return code


def _on_machine(written: Written, files: Files) -> Written:
    """Says on what it ran, unless that is said already."""
    if written.machine or not files.paths:
        return written
    return replace(written, machine=describe_machine(tempfile.gettempdir()))


def replay_line(outcome: Reportable, directory: str | None = None, more: Sequence[str] = ()) -> list[str]:
    """The command that makes the same choices again; nothing where there is none."""
    if isinstance(outcome, Outcome):
        return _replay_run(outcome, directory, more)
    return _replay_herd(outcome.plan.options) if isinstance(outcome, HerdOutcome) else []


def _replay_herd(options: HerdOptions) -> list[str]:
    words = ["lockcache-stress", "herd", "--processes", str(options.processes), "--kernels", str(options.kernels)]
    words += ["--seed", str(options.seed)]
    if options.plant:
        words += ["--plant", options.plant]
    words += ["--uncached"] if options.uncached else []
    return words + (["--directory", os.path.abspath(options.directory)] if options.directory else [])


def _replay_run(outcome: Outcome, directory: str | None, more: Sequence[str]) -> list[str]:
    plan = outcome.plan
    words = ["lockcache-stress", plan.scenario, "--processes", str(plan.processes), "--seconds", f"{plan.seconds:g}"]
    words += ["--max-size", f"{plan.max_size_bytes}B", "--seed", str(plan.seed), *more]
    if plan.plant:
        words += ["--plant", plan.plant]
    if directory:
        words += ["--directory", os.path.abspath(directory)]
    return words
