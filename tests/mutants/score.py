# SPDX-License-Identifier: Apache-2.0
"""The mutation score of the store: the share of small faults, one at a time, that a test notices.

``make mutants``. A sample of mutants of all modules in ``lockcache/filestream`` is drawn, and each is put into a
forked process, or where that cannot be into a copy of the tree, and tried with tests that pass the changed line: those
of the module first, then of its room and of the store, and the quickest case of each test before others. Which lines
each test passes is measured once (``build/mutants/covering``; ``--measure`` measures again).

What came of each mutant is kept in ``build/mutants/results.json``, by the mutant's module, function and change. A run
that is ended goes on where it was; ``--again`` tries those again that survived. ``equivalent.json`` next to this file
lists mutants that change nothing that a user or another process can see, each with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.mutants.covering import VARIABLE, read_passes
from tests.mutants.forked import Forked, Result, can_be_put_into_a_function
from tests.mutants.sampling import ROOT, Mutant, lines_of_statement, sample

_BUILD = ROOT / "build" / "mutants"
_EQUIVALENT = Path(__file__).with_name("equivalent.json")
_COPIED = ("lockcache", "daemon", "stress", "tests", "docs", "pyproject.toml", "pytest.ini", "README.md")
_MEASURED = ("tests/unit", "tests/contract", "tests/races", "tests/access", "tests/properties", "tests/processes")
_MOST_TESTS = 400
#: Tests that take longer come after all others: ten quick ones notice more than a slow one.
_QUICK_SECONDS = 0.1
_MOST_EQUIVALENT = 0.03
_PLAIN = ["-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib", "--hypothesis-profile=quick"]
#: The exit status of pytest when a test failed, and when an import of a test did.
_FAILED = (1, 2)
_PASSED = 0


Results = dict[str, Result]


class Choice:
    """Tests of each mutant."""

    def __init__(self, most_seconds: float) -> None:
        self._lines, self._seconds = read_passes(_BUILD / "covering")
        self._most_seconds = most_seconds

    def tests_of(self, mutant: Mutant, result: Result | None = None) -> list[str]:
        """Returns tests that pass the statement; where none does, as for a constant, tests that pass the module.

        ``result``: of an earlier try. Tests that did not notice it then are left out, unless changed since.
        """
        known = set(result["tests"].split("\n")) if result and "tests" in result else set()
        lines = self._lines.get(mutant.module, {})
        statement = lines_of_statement(mutant.module, mutant.line)
        found = set().union(*(lines.get(line, set()) for line in statement)) or set().union(*lines.values())
        cases: Counter[str] = Counter()
        ranked = []
        for test in sorted(
            found - {it for it in known if result and _is_older(it, result["at"])},
            key=lambda test: (self._seconds[test], test),
        ):
            function = test.partition("[")[0]
            is_slow = self._seconds[test] > _QUICK_SECONDS
            ranked.append((is_slow, _distance(mutant.module, test), cases[function], self._seconds[test], test))
            cases[function] += 1
        chosen: list[str] = []
        left = self._most_seconds
        for _, _, _, seconds, test in sorted(ranked):
            if seconds <= left:
                chosen.append(test)
                left -= seconds
        return chosen[:_MOST_TESTS]


def _is_older(test: str, at: str) -> bool:
    """Returns whether the file of a test was not changed since."""
    return (ROOT / test.partition("::")[0]).stat().st_mtime < float(at)


def _distance(module: str, test: str) -> int:
    """Returns 0 for a test of the module, 1 for one of its room, 2 for one of the store, 3 for another.

    Tests of several processes stand outside of ``tests/unit``. Those that name the module or the room, such as
    ``tests/processes/test_compile_once.py``, are of the room.
    """
    room, _, name = f"filestream/{module}".removesuffix(".py").rpartition("/")
    room = room.removeprefix("filestream/")
    beginnings = (f"tests/unit/{room}/test_{name}", f"tests/unit/{room}/", "tests/unit/filestream/")
    found = next((number for number, beginning in enumerate(beginnings) if test.startswith(beginning)), 3)
    return 1 if found == 3 and any(each and each in test.partition("[")[0] for each in (room, name)) else found


def run_pytest(
    root: Path, arguments: list[str], limit_seconds: float | None = None, **variables: str
) -> tuple[int, str]:
    """Returns pytest's exit status, ``-1`` where it did not end in time, and what it printed."""
    environment = dict(os.environ, **variables)
    environment["PYTHONPATH"] = os.pathsep.join(str(root / part) for part in ("", "daemon", "stress"))
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *_PLAIN, *arguments],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE if limit_seconds else None,
        stderr=subprocess.STDOUT if limit_seconds else None,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=limit_seconds)
        return process.returncode, printed or ""
    except subprocess.TimeoutExpired:
        return -1, ""
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all processes have ended
        process.communicate()


def try_mutant(root: Path, mutant: Mutant, tests: list[str], limit_seconds: float) -> Result:
    """Returns the outcome: ``killed``, with the test that noticed it, ``hung`` or ``survived``."""
    if not tests:
        return {"outcome": "survived"}
    path = root / "lockcache" / "filestream" / mutant.module
    source = path.read_text()
    listed = root / "chosen"
    listed.write_text("\n".join(tests))
    path.write_text(mutant.changed_source())
    try:
        status, printed = run_pytest(root, ["-x", "--timeout=60", "-p", "no:xdist", f"@{listed}"], limit_seconds)
    finally:
        path.write_text(source)
    noticed = [line.split(" - ")[0] for line in printed.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if status == _PASSED:
        return {"outcome": "survived"}
    if status == -1:
        return {"outcome": "hung"}
    if status in _FAILED or "ImportError while loading conftest" in printed:
        return {"outcome": "killed", "by": noticed[0].partition(" ")[2] if noticed else "an import"}
    raise RuntimeError(f"pytest ended with {status} for {mutant}: {printed[-2000:]}")


def copy_tree(target: Path) -> None:
    """Copy what the tests need. Bytecode is checked by content, because two mutants may have the same time and size."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for part in _COPIED:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target / part)
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "lockcache"],
        cwd=target,
        check=True,
    )


class Run:
    """A run over mutants, in several jobs."""

    def __init__(
        self, mutants: list[Mutant], results: Results, choice: Choice, jobs: int, limit_seconds: float
    ) -> None:
        self._mutants = mutants
        self._results = results
        self._choice = choice
        self._jobs = jobs
        self._limit_seconds = limit_seconds
        self._all = len(mutants)
        self._done = 0
        self._survived = 0
        self._began = time.time()
        self._lock = threading.Lock()

    def in_forks(self) -> None:
        """Try those that can be put into a function."""
        chosen = [(it, self._tests_of(it)) for it in self._mutants if can_be_put_into_a_function(it)]
        for mutant in (it for it, tests in chosen if not tests):
            self._note(mutant, {"outcome": "survived"})
        forked = Forked([pair for pair in chosen if pair[1]], self._jobs, self._limit_seconds, self._note)
        files = {test.partition("::")[0] for _, tests in chosen for test in tests}
        if files:
            pytest.main(
                [*_PLAIN, "--timeout=60", "-p", "no:terminal", "-p", "no:xdist", *sorted(files)], plugins=[forked]
            )
        tried = {mutant for mutant, _ in chosen}
        self._mutants = [mutant for mutant in self._mutants if mutant not in tried]

    def in_copies(self) -> None:
        """Try those that are left, each with a pytest of its own."""
        left: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
        for mutant in self._mutants:
            left.put(mutant)
        jobs = range(min(self._jobs, len(self._mutants)))
        threads = [threading.Thread(target=self._work, args=(left, _BUILD / f"tree-{job}")) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(file=sys.stderr)

    def _work(self, left: queue.SimpleQueue[Mutant], root: Path) -> None:
        copy_tree(root)
        while True:
            try:
                mutant = left.get_nowait()
            except queue.Empty:
                break
            self._note(mutant, try_mutant(root, mutant, self._tests_of(mutant), self._limit_seconds))
        shutil.rmtree(root)

    def _tests_of(self, mutant: Mutant) -> list[str]:
        return self._choice.tests_of(mutant, self._results.get(mutant.name))

    def _note(self, mutant: Mutant, result: Result) -> None:
        with self._lock:
            if result["outcome"] == "survived":
                older = self._results.get(mutant.name, {}).get("tests", "").split("\n")
                tests = sorted({*older, *self._tests_of(mutant)} - {""})
                result = {**result, "at": str(self._began), "tests": "\n".join(tests)}
            self._results[mutant.name] = result
            write_results(self._results)
            self._done += 1
            self._survived += result["outcome"] == "survived"
            width = 30
            bar = "#" * (width * self._done // max(1, self._all))
            end = "" if sys.stderr.isatty() else "\n"
            text = f"[{bar:<{width}}] {self._done} of {self._all}, {self._survived} survived; {mutant.module:<30}"
            print(f"\r{text}", end=end, file=sys.stderr, flush=True)


def read_results() -> Results:
    """Returns what came of each mutant that was tried, by the mutant's name."""
    path = _BUILD / "results.json"
    return json.loads(path.read_text()) if path.exists() else {}


def write_results(results: Results) -> None:
    """Replace the file, so that a run that is killed leaves a whole one."""
    path = _BUILD / "results.json.new"
    path.write_text(json.dumps(results, indent=1))
    path.rename(_BUILD / "results.json")


def equivalents() -> set[str]:
    """Returns the names of mutants that are listed as equivalent."""
    return {f"{it['module']}\n{it['function']}\n{it['change']}" for it in json.loads(_EQUIVALENT.read_text())}


def measure(tests: Sequence[str]) -> None:
    """Run the quick tests once, or some again, and write down which lines each of them passes."""
    folder = _BUILD / "covering"
    if not tests:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    marks = ["-m", "not long and not exhaustive", "--by-folder", "-n", "2", "--dist", "worksteal"]
    run_pytest(ROOT, ["-p", "tests.mutants.covering", *marks, *(tests or _MEASURED)], **{VARIABLE: str(folder)})


def print_score(name: str, mutants: Iterable[Mutant], results: Results, excused: set[str]) -> float:
    """Print a row of the table, and return the score in percent."""
    tried = [mutant for mutant in mutants if mutant.name in results]
    left = [mutant for mutant in tried if results[mutant.name]["outcome"] == "survived"]
    same = sum(mutant.name in excused for mutant in left)
    score = 100 * (len(tried) - len(left)) / max(1, len(tried) - same)
    print(f"| {name} | {len(tried)} | {len(tried) - len(left)} | {same} | {score:.0f} % |")
    return score


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=[""], help="rooms or modules: entry, disk/locks.py (all)")
    parser.add_argument("--most", type=int, default=300, help="mutants of the whole store (300)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (2)")
    parser.add_argument(
        "--seconds", type=float, default=20, help="tests for each mutant, in seconds of processor time (20)"
    )
    parser.add_argument("--limit", type=float, default=600, help="seconds after which a mutant hangs (600)")
    parser.add_argument(
        "--measure", nargs="*", metavar="TESTS", help="measure again which tests pass which lines: all, or these"
    )
    parser.add_argument("--again", action="store_true", help="try those again that survived")
    parser.add_argument("--forks", action="store_true", help="leave out those that need a copy of the tree")
    parser.add_argument("--report", action="store_true", help="try none, only print")
    given = parser.parse_args()
    if given.measure is not None or not (_BUILD / "covering").exists():
        measure(given.measure or ())
    results = read_results()
    mutants = sample(given.most)
    chosen = [mutant for mutant in mutants if mutant.module.startswith(tuple(given.parts))]
    if not given.report:
        again = {"survived", "died"} if given.again else set()
        untried = [it for it in chosen if it.name not in results or results[it.name]["outcome"] in again]
        run = Run(untried, results, Choice(given.seconds), given.jobs, given.limit)
        run.in_forks()
        if not given.forks:
            run.in_copies()
    excused = equivalents()
    if len(excused) > _MOST_EQUIVALENT * given.most:
        parser.error(f"{_EQUIVALENT.name} lists {len(excused)} mutants: more than three of a hundred")
    for mutant in chosen:
        if results.get(mutant.name, {}).get("outcome") == "survived" and mutant.name not in excused:
            print(f"survived: {mutant.module}:{mutant.line} {mutant.function}\n{mutant.change}\n")
    print("| room | mutants | noticed | equivalent | score |\n|---|---|---|---|---|")
    for room in sorted({mutant.module.rpartition("/")[0] for mutant in chosen}):
        print_score(
            room or "(modules)", [it for it in chosen if it.module.rpartition("/")[0] == room], results, excused
        )
    print_score("together", chosen, results, excused)
    return 0


if __name__ == "__main__":
    sys.exit(main())
