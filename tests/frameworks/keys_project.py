# SPDX-License-Identifier: Apache-2.0
"""A project of a user's, and the processes that compile it, for tests of the frameworks' keys."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.frameworks.projects import PROJECTS
from tests.frameworks.support import PROGRAMS, Programs

RIGHT = [3001, 5001, 7001]
WARPS = {"triton": [4001]}


class Project:
    """A project of a user's, and the processes that compile it."""

    def __init__(self, framework: str, tmp_path: Path) -> None:
        self.programs, self._tmp_path = Programs(framework, tmp_path), tmp_path
        self.framework = framework = self.programs.name
        self.root = tmp_path / "checkout"
        self.path = self.programs.environment({})["PYTHONPATH"]
        for name, text in PROJECTS[framework].items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_000_000_000, 1_000_000_000))  # as in an image, in which all times are equal

    def replace(self, old: str, new: str) -> None:
        """Replace a text in the one file that has it; its size and time stay the same."""
        [path] = [path for path in self.root.rglob("*") if path.is_file() and old in path.read_text()]
        self.write(str(path.relative_to(self.root)), path.read_text().replace(old, new))

    def compile(self, *commands: str, how: str = "shared", **variables: str) -> dict[str, Any]:
        """Returns what a process of its own compiled, and the numbers in what it got."""
        command = [self.programs.python, PROGRAMS / f"keys_{self.framework}.py", how, *(commands or ["compile"])]
        environment = self.programs.environment({"PYTHONPATH": self.path, **variables})
        done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=False)
        self.said = done.stderr
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        #: Of the output, where the framework's is the same each time.
        self.digest = found.pop("digest", "")
        return found

    def wants(self, *numbers: int) -> list[int]:
        return sorted({*numbers, *WARPS.get(self.framework, [])})

    def elsewhere(self, name: str) -> dict[str, str]:
        """The variables of a process with other directories of its own."""
        own = str(self._tmp_path / name)
        names = (
            "CUPY_CACHE_DIR",
            "NUMBA_CACHE_DIR",
            "WARP_CACHE_PATH",
            "TRITON_CACHE_DIR",
            "JAX_COMPILATION_CACHE_DIR",
        )
        return dict.fromkeys(names, own)

    def move(self) -> None:
        """Make it another checkout."""
        self.root = self.root.rename(self.root.with_name(f"{self.root.name}-moved"))

    def pretend(self, module: str, name: str, value: str) -> None:
        """Have later processes find another value of a name in a module."""
        self.write("sitecustomize.py", f"import {module} as module\nmodule.{name} = {value}\n")
        self.path = f"{self.root}{os.pathsep}{self.path}"

    def pretend_another_cpu(self) -> None:
        """Have later processes find other instructions in their CPU."""
        self.pretend("lockcache.integrations.framework_keys.host", "cpu_features", "lambda: 'other'")


def in_checkout(
    programs: Programs, checkout: Path, *, line: str = "", file: str = "", **variables: str
) -> dict[str, object]:
    """Returns the answer of the program in a copy at ``checkout``, whose kernels have a ``line`` changed.

    ``file``: another one that has the line.
    """
    if not checkout.exists():
        shutil.copytree(PROGRAMS, checkout)
    if line:
        kernels = checkout / f"{file or f'{programs.name}_kernels'}.py"
        kernels.write_text(kernels.read_text().replace(*line.split("|")))
    ended = subprocess.run(
        [programs.python, checkout / f"{programs.name}_program.py"],
        env=programs.environment(variables),
        input="[0, 1]\n\n",
        check=True,
        capture_output=True,
        text=True,
        cwd=checkout,
    )
    found: dict[str, object] = json.loads(ended.stdout.splitlines()[-1])
    assert (found["failed"], found["wrong"]) == (0, 0)
    return found
