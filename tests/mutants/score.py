# SPDX-License-Identifier: Apache-2.0
"""The mutation score of the shared directory's core: the share of small faults, one at a time, that a test notices.

``make mutants``. For each module that is named below, a sample of mutants is drawn, written into a copy of the tree,
and tried with the quickest tests of that module. The sample is the same each time, by a fixed seed, and mutants are
chosen by line and kind of fault, so that one long expression is not half of the sample. The faults are cosmic-ray's.

Prints the place and the change of each mutant that no test noticed.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

ROOT = Path(__file__).resolve().parents[2]
SEED = 20261121

#: The quickest tests of each module.
TESTS = {
    "entry/codec": [
        "tests/unit/entry/test_codec.py",
        "tests/unit/entry/test_reader.py",
        "tests/unit/entry/test_reader_damage.py",
        "tests/unit/entry/test_staging.py",
        "tests/access/test_signing.py",
    ],
    "accounting/state": ["tests/unit/accounting/test_state.py", "tests/unit/filestream/test_writer.py"],
    "policy": ["tests/unit/filestream/test_policy.py", "tests/unit/filestream/test_seeding_faults.py"],
    "compile_once/lease": [
        "tests/unit/compile_once/test_lease.py",
        "tests/contract/test_compile_once.py",
        "tests/processes/test_compile_once.py",
    ],
    "eviction/remove": [
        "tests/unit/eviction/test_evict.py",
        "tests/unit/eviction/test_empty_folders.py",
        "tests/unit/filestream/test_writer.py",
        "tests/unit/disk/test_files.py",
    ],
    "entry/reader": [
        "tests/unit/entry/test_reader.py",
        "tests/unit/entry/test_reader_damage.py",
        "tests/unit/entry/test_reader_surroundings.py",
        "tests/contract/test_stats.py",
    ],
    "entry/staging": [
        "tests/unit/entry/test_staging.py",
        "tests/unit/filestream/test_writer.py",
        "tests/unit/filestream/test_admission.py",
        "tests/contract/test_stats.py",
    ],
    "entry/removal": [
        "tests/unit/entry/test_staging.py",
        "tests/unit/filestream/test_viewer.py",
        "tests/unit/filestream/test_views_left.py",
        "tests/unit/filestream/test_writer.py",
        "tests/contract/test_stats.py",
    ],
    "compile_once/turns": [
        "tests/unit/compile_once/test_turns.py",
        "tests/contract/test_compile_once.py",
        "tests/unit/compile_once/test_lease.py",
        "tests/processes/test_compile_once.py",
    ],
    "disk/locks": ["tests/unit/disk/test_locks.py", "tests/unit/test_fork.py"],
}
_PYTEST = [
    "-x",
    "-q",
    "--timeout=40",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-o",
    "addopts=--import-mode=importlib",
]


@dataclass(frozen=True)
class Mutant:
    """One fault in one place."""

    module: str
    operator: str
    occurrence: int
    line: int

    def path(self, root: Path) -> Path:
        return root / "lockcache" / "filestream" / f"{self.module}.py"


def mutants_of(module: str) -> Iterator[Mutant]:
    """Yields every mutant of a module, except those of annotations, which no code evaluates."""
    source = (ROOT / "lockcache" / "filestream" / f"{module}.py").read_text()
    nodes = list(ast_nodes(get_ast(source)))
    annotated = set(_annotations(source))
    for name in cosmic_ray.plugins.operator_names():
        kind = cosmic_ray.plugins.get_operator(name)
        if kind.arguments():
            continue
        operator = kind()
        positions = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, (line, column) in enumerate(positions):
            in_annotation = any(first <= (line, column) < last for first, last in annotated)
            if not in_annotation and _is_code(source, operator, occurrence):
                yield Mutant(module, name, occurrence, line)


def _is_code(source: str, operator: Any, occurrence: int) -> bool:
    """Returns whether the mutant compiles, and does more than change ``*,`` in a list of parameters to ``/,``."""
    try:
        changed = mutate_code(source, operator, occurrence)
        ast.parse(changed)
    except (SyntaxError, AttributeError):  # the latter: cosmic-ray cannot replace a dotted name of an exception
        return False
    return "/," not in changed.replace(" ", "")


def _annotations(source: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    for node in ast.walk(ast.parse(source)):
        for name in ("annotation", "returns"):
            found = getattr(node, name, None)
            if found is not None:
                yield (found.lineno, found.col_offset), (found.end_lineno, found.end_col_offset)


def sample(module: str, most: int) -> list[Mutant]:
    """Returns at most ``most`` mutants, each of another line or kind of fault, the same for the same code."""
    choose = random.Random(f"{SEED}-{module}")
    groups: dict[tuple[int, str], list[Mutant]] = {}
    for mutant in mutants_of(module):
        family = mutant.operator.split("/")[-1].split("_")[0]
        groups.setdefault((mutant.line, family), []).append(mutant)
    chosen = [choose.choice(group) for _, group in sorted(groups.items())]
    return sorted(choose.sample(chosen, min(most, len(chosen))), key=lambda mutant: mutant.line)


def run_tests(root: Path, tests: list[str], limit_seconds: float) -> str:
    """Returns the verdict of the tests on the copy in ``root``: ``killed``, ``survived`` or ``hung``."""
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    environment["PYTHONPATH"] = os.pathsep.join(str(root / part) for part in ("", "daemon", "stress"))
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *_PYTEST, *tests],
        cwd=root,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return "killed" if process.wait(limit_seconds) else "survived"
    except subprocess.TimeoutExpired:
        return "hung"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all processes have ended
        process.wait()


def try_mutant(root: Path, mutant: Mutant, limit_seconds: float) -> tuple[str, str]:
    """Returns the verdict of the tests, and the change."""
    path = mutant.path(root)
    source = path.read_text()
    changed = mutate_code(source, cosmic_ray.plugins.get_operator(mutant.operator)(), mutant.occurrence)
    difference = difflib.unified_diff(source.splitlines(), changed.splitlines(), n=0, lineterm="")
    change = "\n".join(line for line in difference if not line.startswith(("---", "+++", "@@")))
    path.write_text(changed)
    try:
        return run_tests(root, TESTS[mutant.module], limit_seconds), change
    finally:
        path.write_text(source)


def copy_tree(target: Path) -> None:
    """Copy what the tests need. Bytecode is checked by content, because two mutants may have the same time and size."""
    for part in ("lockcache", "daemon", "stress", "tests", "pyproject.toml", "pytest.ini", "README.md", "docs"):
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=list(TESTS), help=f"of {', '.join(TESTS)}")
    parser.add_argument("--most", type=int, default=24, help="mutants of each module (24)")
    parser.add_argument("--seconds", type=float, default=300, help="how long the tests of one may take (300)")
    parser.add_argument("--json", type=Path, help="write what came of each to this file")
    given = parser.parse_args()
    unknown = set(given.modules) - set(TESTS)
    if unknown:
        parser.error(f"no tests are named for {', '.join(sorted(unknown))}; there are some for {', '.join(TESTS)}")
    outcomes: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="lockcache-mutants-") as folder:
        root = Path(folder)
        copy_tree(root)
        for module in given.modules:
            if run_tests(root, TESTS[module], given.seconds) != "survived":
                print(f"{module}: its tests fail without a fault: {' '.join(TESTS[module])}", file=sys.stderr)
                return 1
            for mutant in sample(module, given.most):
                outcome, change = try_mutant(root, mutant, given.seconds)
                outcomes.append({**mutant.__dict__, "outcome": outcome, "change": change})
                if outcome == "survived":
                    print(f"survived: {module}.py:{mutant.line} {mutant.operator}\n{change}\n", flush=True)
            print_score(module, [outcome for outcome in outcomes if outcome["module"] == module])
            if given.json:
                given.json.write_text(json.dumps(outcomes, indent=1))
    print_score("all", outcomes)
    return 0


def print_score(name: str, outcomes: list[dict[str, object]]) -> None:
    noticed = sum(outcome["outcome"] != "survived" for outcome in outcomes)
    score = 100 * noticed / max(1, len(outcomes))
    print(f"{name}: {noticed} of {len(outcomes)} mutants noticed, {score:.1f} %", flush=True)


if __name__ == "__main__":
    sys.exit(main())
