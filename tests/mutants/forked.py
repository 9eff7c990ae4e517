# SPDX-License-Identifier: Apache-2.0
"""Mutants in forked processes: pytest collects once, and each mutant is put into the functions of a forked child.

A tenth of the processor time of a pytest for each mutant. A mutant of a constant, of a default or of a decorator needs
an import of its own, and so does one that only a started interpreter would notice: those have a copy of the tree.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import time
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.mutants.sampling import Mutant

Result = dict[str, str]


def can_be_put_into_a_function(mutant: Mutant) -> bool:
    """Returns whether the fault is in the code of a function, so that no module has to be imported again."""
    return _place(mutant) is not None


def _place(mutant: Mutant) -> tuple[FunctionType, CodeType] | None:
    """Returns the function that the fault is in, and its code with the fault."""
    module = importlib.import_module(f"lockcache.filestream.{mutant.module.removesuffix('.py').replace('/', '.')}")
    code: CodeType | None = compile(mutant.changed_source(), str(module.__file__), "exec", dont_inherit=True)
    value: Any = module
    for name in mutant.function.split("."):
        value = _unwrap(vars(value).get(name))
        code = (
            next((it for it in code.co_consts if isinstance(it, CodeType) and it.co_name == name), None)
            if code
            else None
        )
        if isinstance(value, FunctionType) or value is None or code is None:
            break
    if not isinstance(value, FunctionType) or code is None or code == value.__code__:
        return None
    return (value, code) if code.co_freevars == value.__code__.co_freevars else None


def _unwrap(value: Any) -> Any:
    for name in ("fget", "func", "__func__", "__wrapped__"):
        value = getattr(value, name, value) if not isinstance(value, FunctionType) or name == "__wrapped__" else value
    return value


class Forked:
    """A plugin that tries mutants, in place of a run of the tests."""

    def __init__(
        self,
        chosen: list[tuple[Mutant, list[str]]],
        jobs: int,
        limit_seconds: float,
        note: Callable[[Mutant, Result], None],
    ) -> None:
        self._chosen = chosen
        self._jobs = jobs
        self._limit_seconds = limit_seconds
        self._note = note
        self._failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed = self._failed or report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Fork for each mutant."""
        items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()
        running: dict[int, tuple[Mutant, int, float]] = {}
        for mutant, tests in self._chosen:
            self._start(mutant, [items[test] for test in tests if test in items], running)
            self._wait(running, self._jobs - 1)
        self._wait(running, 0)
        return True

    def _start(self, mutant: Mutant, items: list[pytest.Item], running: dict[int, tuple[Mutant, int, float]]) -> None:
        mine, childs = os.pipe()
        if pid := os.fork():
            os.close(childs)
            running[mine] = (mutant, pid, time.monotonic() + self._limit_seconds)
            return
        os.setsid()
        try:
            os.write(childs, json.dumps(self._try(mutant, items)).encode())
        finally:
            os._exit(0)

    def _try(self, mutant: Mutant, items: list[pytest.Item]) -> Result:
        place = _place(mutant)
        assert place is not None
        function, function.__code__ = place[0], place[1]
        for value in vars(importlib.import_module(function.__module__)).values():
            getattr(value, "cache_clear", int)()  # what the function returned before the fork
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return {"outcome": "killed", "by": self._failed}
        return {"outcome": "survived"}

    def _wait(self, running: dict[int, tuple[Mutant, int, float]], most: int) -> None:
        while len(running) > most:
            ready, _, _ = select.select(
                list(running), [], [], max(0.0, min(it[2] for it in running.values()) - time.monotonic())
            )
            late = [fd for fd, (_, _, until) in running.items() if until <= time.monotonic()]
            for fd in ready or late:
                mutant, pid, _ = running.pop(fd)
                text = os.read(fd, 65536) if fd in ready else b""
                os.close(fd)
                try:
                    os.killpg(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # it has ended
                os.waitpid(pid, 0)
                self._note(mutant, json.loads(text) if text else {"outcome": "died" if fd in ready else "hung"})
