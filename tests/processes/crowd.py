# SPDX-License-Identifier: Apache-2.0
"""Running the same function in many real processes, by fork or by spawn, and collecting their results."""

from __future__ import annotations

import contextlib
import multiprocessing
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from typing import Any

METHODS = ("fork", "spawn")

# A guard against hangs and not a measurement: all processes take a fraction of it.
HANG_SECONDS = 60.0


class Crowd:
    """Running processes, each of which ends with a result or an exception."""

    def __init__(self, context: BaseContext, target: Callable[..., Any], arguments: Iterable[Sequence[Any]]) -> None:
        self.processes: list[Any] = []
        self._results: list[Connection] = []
        for each in arguments:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_report, args=(sender, target, tuple(each)), daemon=True)
            process.start()
            sender.close()
            self.processes.append(process)
            self._results.append(receiver)

    def results(self) -> list[Any]:
        """Returns the results in order. Raises the first exception at once, because other processes may wait for it."""
        collected: dict[Connection, Any] = {}
        while len(collected) < len(self._results):
            ready = wait([each for each in self._results if each not in collected], HANG_SECONDS)
            assert ready, f"hanging: {[process.name for process in self.processes if process.is_alive()]}"
            for receiver in ready:
                collected[receiver] = self._receive(receiver)
        self.join()
        return [collected[receiver] for receiver in self._results]

    def _receive(self, receiver: Any) -> Any:
        try:
            result, failure = receiver.recv()
        except EOFError:
            process = self.processes[self._results.index(receiver)]
            process.join(HANG_SECONDS)
            raise AssertionError(f"{process.name} ended with {process.exitcode} and no result") from None
        assert failure is None, failure
        return result

    def join(self) -> None:
        """Wait for the end of every process."""
        for process in self.processes:
            process.join(HANG_SECONDS)
            assert process.exitcode is not None, f"{process.name} does not end"

    def close(self) -> None:
        """Kill processes that still run, and close the pipes."""
        for process, receiver in zip(self.processes, self._results, strict=True):
            process.kill()
            process.join()
            process.close()
            receiver.close()


@contextlib.contextmanager
def crowd(method: str, target: Callable[..., Any], arguments: Iterable[Sequence[Any]]) -> Iterator[Crowd]:
    """Run ``target(*each)`` in a process for each element of ``arguments``. The end of the block kills them."""
    started = Crowd(multiprocessing.get_context(method), target, arguments)
    try:
        yield started
    finally:
        started.close()


def run_all(method: str, target: Callable[..., Any], arguments: Iterable[Sequence[Any]]) -> list[Any]:
    """Run ``target(*each)`` in a process for each element of ``arguments``. Returns the results in order."""
    with crowd(method, target, arguments) as running:
        return running.results()


def _report(sender: Connection, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        outcome = target(*arguments), None
    except BaseException:  # noqa: BLE001 - whatever it was, the test must hear of it
        outcome = None, traceback.format_exc()
    sender.send(outcome)
    sender.close()
