# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a console block, after `$ `, and compares their output with that of the block."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.docs.pages import PROJECT

# Commands that go on until they are ended run once instead, with the same settings, directories and budgets.
_ENDLESS: Final = (
    (re.compile(r"^lockcache-daemon\b(?! files)(?!.*--(once|dry-run|help)).*(?<!&)$"), " --dry-run"),
    (re.compile(r"^lockcache top\b(?!.*--once).*$"), " --once"),
)
_HANG_SECONDS: Final = 300


def inside(text: str, root: str) -> str:
    """Returns the text with the example directories of the documents moved below ``root``."""
    return re.sub(r"(?<![\w.~/}-])/(?=(scratch|shared|golden|image|etc/lockcache|var/lib)\b)", f"{root}/", text)


class Step(NamedTuple):
    """A command, its exit codes, and lines of its output in this order, between which others may be."""

    command: str
    exit_codes: tuple[int, ...]
    says: tuple[str, ...]


def steps(text: str) -> Iterator[Step]:
    """Yields the commands of a block: after `$ `, continued after `> `."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        count = next((n for n, line in enumerate(lines[1:], 1) if not line.startswith("> ")), len(lines))
        command = "\n".join([lines[0], *(line[2:] for line in lines[1:count])])
        code = re.search(r"# exit code (\d+)(?: or (\d+))?$", command)
        codes = tuple(int(number) for number in code.groups() if number) if code else (0,)
        yield Step(command, codes, tuple(line for line in lines[count:] if line.strip()))


class Console:
    """A shell that keeps variables and directory from one command to the next. ``root`` stands for /."""

    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self._root = root
        self._environment = {**os.environ, **environment}
        self._state = root / ".state"
        self._state.write_text("")
        self._said = root / ".said"
        self._groups: list[int] = []

    def run(self, step: Step) -> None:
        """Run a step. Raises AssertionError for another exit code, and for a line that is missing from the output."""
        code, said = self._run(self.inside(step.command))
        assert code in step.exit_codes, f"exit code {code}: {step.command}\n{said}"
        missing = _first_missing(step.says, said)
        assert missing is None, f"{step.command}\ndoes not say\n{missing}\nbut\n{said}"

    def inside(self, text: str) -> str:
        """Returns the text with the example directories of the documents moved below the root."""
        return inside(text, str(self._root))

    def close(self) -> None:
        """End the processes that are left in the background."""
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _run(self, command: str) -> tuple[int, str]:
        for pattern, addition in _ENDLESS:
            bare = re.sub(r"\s+#.*$", "", command)
            if pattern.match(bare):
                command = bare + addition
        # Output and errors go to a file, because a process in the background would keep a pipe open.
        keep = f'{{ export -p; printf "cd %q\\n" "$PWD"; }} >{self._state}'
        script = f". {self._state}\n{command}\ncode=$?\n{keep}\nexit $code"
        with open(self._said, "wb") as said:
            process = subprocess.Popen(
                ["bash", "-c", script],
                cwd=self._root / "work",
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._groups.append(process.pid)
            code = process.wait(_HANG_SECONDS)
        return code, self._said.read_text().replace(str(self._root), "")


# What Open MPI wants on fewer cores than ranks, and of root: the guide names its options. MPICH asks for neither.
_OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def environment(root: Path) -> dict[str, str]:
    """Returns variables with a home of their own, this environment's programs first, and no path of a cache."""
    home = root / "home"
    return {
        **_OPEN_MPI,
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "120",
        "TERM": "dumb",
        "PYTHONPATH": os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")]),
    }


def _first_missing(expected: tuple[str, ...], said: str) -> str | None:
    left = iter([_even(line) for line in said.splitlines()])
    for line in expected:
        # Blanks around the dots are only for readers.
        pattern = re.compile(".*".join(re.escape(part) for part in re.split(r" ?\.\.\. ?", _even(line))))
        if line.strip() != "..." and not any(pattern.fullmatch(found) for found in left):
            return line
    return None


def _even(line: str) -> str:
    return " ".join(line.split())
