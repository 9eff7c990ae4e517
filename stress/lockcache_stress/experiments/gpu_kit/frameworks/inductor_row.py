# SPDX-License-Identifier: Apache-2.0
"""Row ``inductor-shared``: seconds to the first step of a small GPT under ``torch.compile``, as on several new nodes.

Each process stands for a node: Inductor's and Triton's directories are its own. In the phases all processes begin
together, with nothing compiled, with their own directories warm, on an empty directory of lockcache, and at last with
new directories of their own and lockcache's from before. The programs run under ``lockcache run``, unchanged. Judged
are the losses, which are the same everywhere, that each graph of a new node is a hit, and that a new node is quicker
than one that compiles. How many processes compiled a graph on the empty directory is reported.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import wait
from statistics import median
from typing import IO, Any, Final, cast

from lockcache_stress.experiments.gpu_kit.plan import Found, Kit, NotRunError, measured
from lockcache_stress.processes import interrupts_blocked
from lockcache_stress.run import Check, equal, some, zero
from lockcache_stress.trouble import open_workspace

_NAME: Final = "inductor-shared"
_PROGRAM: Final = "lockcache_stress.experiments.gpu_kit.frameworks.inductor_program"
_MOST_PROCESSES: Final = 6
_PATIENCE_SECONDS: Final = 150.0
#: Losses are numbers of a few units, in single precision.
_TOLERANCE: Final = 1e-3
_GRAPHS: Final = ("fxgraph_cache_hit", "fxgraph_cache_miss", "autograd_cache_hit", "autograd_cache_miss")


@dataclass(frozen=True)
class _Phase:
    name: str
    #: The folder with the directories of the nodes.
    nodes: str
    is_shared: bool


_OWN_COLD: Final = _Phase("own directories, cold", "own", False)
_OWN_WARM: Final = _Phase("own directories, warm", "own", False)
_SHARED_COLD: Final = _Phase("lockcache, cold", "first", True)
_NEW_NODES: Final = _Phase("lockcache, new nodes", "second", True)
_PHASES: Final = (_OWN_COLD, _OWN_WARM, _SHARED_COLD, _NEW_NODES)


def why_no_inductor(gpu_arch: str | None) -> str | None:
    """Returns why the row cannot be run here; ``None`` if it can."""
    missing = [name for name in ("torch", "triton") if find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not installed"
    return "no GPU" if gpu_arch is None else None


def run_inductor(kit: Kit, device: str = "cuda") -> Found:
    """Run the row. Raises :class:`NotRunError` if torch cannot compile here, even without lockcache."""
    processes = min(kit.options.processes, _MOST_PROCESSES)
    found: dict[_Phase, list[dict[str, Any]]] = {}
    with open_workspace(None) as space:
        for number, phase in enumerate(_PHASES):
            kit.show(_NAME, number / len(_PHASES), phase.name)
            found[phase] = _run_phase(phase, space.control, space.cache, processes, device)
    return _judge(kit, found, processes, device)


def _run_phase(phase: _Phase, control: str, directory: str, processes: int, device: str) -> list[dict[str, Any]]:
    """Returns what each process printed. Raises :class:`NotRunError` for an error without lockcache."""
    with ExitStack() as stack:
        started = [
            stack.enter_context(_Started(_command(phase, directory, device), _variables(control, phase, number)))
            for number in range(processes)
        ]
        answers = _begin_together(started)
    errors = [error for _, error in answers if error]
    if errors and not phase.is_shared:
        raise NotRunError(f"torch.compile could not be used: {errors[0]}")
    return [{"error": error} if error else json.loads(line) for line, error in answers]


def _command(phase: _Phase, directory: str, device: str) -> list[str]:
    program = [sys.executable, "-m", _PROGRAM, device]
    if not phase.is_shared:
        return program
    return [sys.executable, "-m", "lockcache", "run", "--quiet", "--dir", directory, "--", *program]


def _variables(control: str, phase: _Phase, number: int) -> dict[str, str]:
    node = os.path.join(control, phase.nodes, str(number))
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("LOCKCACHE_")},
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(node, "inductor"),
        "TRITON_CACHE_DIR": os.path.join(node, "triton"),
        "TORCHINDUCTOR_COMPILE_THREADS": "2",
    }


class _Started:
    """A process, which is killed with all that it started when the block is left."""

    def __init__(self, command: Sequence[str], variables: dict[str, str]) -> None:
        self._command, self._variables = command, variables

    def __enter__(self) -> _Started:
        self._errors = tempfile.TemporaryFile("w+", errors="replace")
        with interrupts_blocked():
            self._process = subprocess.Popen(
                self._command,
                env=self._variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its compile workers, too
        self._process.communicate()
        self._errors.close()

    def until_ready(self, deadline: float) -> None:
        """Wait for the first line that it prints, or for its end."""
        wait([self._output.fileno()], max(0.0, deadline - time.monotonic()))

    def begin(self) -> None:
        """Let it begin; nothing happens to one that has ended."""
        with suppress(BrokenPipeError):
            os.write(self._input.fileno(), b"\n")

    def finish(self, deadline: float) -> tuple[str, str]:
        """Returns the last line that it printed; or an empty one, and its error."""
        try:
            output, _ = self._process.communicate(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return "", f"it was not over after {_PATIENCE_SECONDS:.0f} s"
        lines = output.strip().splitlines()
        if self._process.returncode or not lines:
            self._errors.seek(0)
            said = self._errors.read().strip().splitlines()
            return "", said[-1] if said else f"exit code {self._process.returncode}"
        return lines[-1], ""

    @property
    def _input(self) -> IO[str]:
        return cast("IO[str]", self._process.stdin)

    @property
    def _output(self) -> IO[str]:
        return cast("IO[str]", self._process.stdout)


def _begin_together(started: Sequence[_Started]) -> list[tuple[str, str]]:
    """Returns the last line and the error of each process, which all began once the slowest was ready."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for process in started:
        process.until_ready(deadline)
    for process in started:
        process.begin()
    return [process.finish(deadline) for process in started]


def _judge(kit: Kit, found: dict[_Phase, list[dict[str, Any]]], processes: int, device: str) -> Found:
    errors = [answer["error"] for answers in found.values() for answer in answers if "error" in answer]
    ran = {phase: [each for each in answers if "error" not in each] for phase, answers in found.items()}
    seconds = {phase: median(each["first_step_seconds"] for each in ran[phase]) for phase in ran if ran[phase]}
    wrong = _count_wrong(ran)
    counts = {phase: _count(ran[phase]) for phase in _PHASES}
    new = counts[_NEW_NODES]
    lines = [
        zero("wrong losses", wrong),
        *(Check(f"first step, {phase.name}", f"{seconds[phase]:.2f} s") for phase in seconds),
        Check("graphs compiled on the empty directory", f"{counts[_SHARED_COLD]['fxgraph_cache_miss']}"),
        some("graphs that new nodes found", new["fxgraph_cache_hit"]),
        zero("graphs that new nodes compiled", new["fxgraph_cache_miss"] + new["autograd_cache_miss"]),
        equal("processes that ended well", sum(map(len, ran.values())), processes * len(_PHASES)),
    ]
    if _OWN_COLD in seconds and _NEW_NODES in seconds:
        ratio = seconds[_OWN_COLD] / seconds[_NEW_NODES]
        lines.append(Check("cold over new nodes", f"{ratio:.1f}x", "> 1", ratio > 1))
    outcome = measured(
        _NAME,
        f"{_NAME}: {processes} processes, a small GPT",
        lines,
        {"seconds": {phase.name: seconds[phase] for phase in seconds}, "counts": {p.name: counts[p] for p in counts}},
        operations=sum(map(len, ran.values())),
        hits=new["fxgraph_cache_hit"],
        wrong=wrong,
        findings=[{"error": error} for error in errors],
    )
    did = f"{processes} processes, seconds to the first step: "
    did += ", ".join(f"{phase.name} {seconds[phase]:.2f}" for phase in seconds)
    notes = [] if device == "cuda" else ["nothing was launched on a GPU"]
    return Found(did, outcome, counts[_SHARED_COLD]["fxgraph_cache_miss"], None, wrong, notes)


def _count(answers: Sequence[dict[str, Any]]) -> dict[str, int]:
    return {name: sum(answer["counters"].get(name, 0) for answer in answers) for name in _GRAPHS}


def _count_wrong(ran: dict[_Phase, list[dict[str, Any]]]) -> int:
    """Returns how many processes computed other losses than the first one without lockcache."""
    everything = [answer["losses"] for phase in _PHASES for answer in ran[phase]]
    return sum(
        any(abs(one - other) > _TOLERANCE for one, other in zip(losses, everything[0], strict=True))
        for losses in everything
    )
