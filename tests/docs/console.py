"""Runs what stands behind the `$ ` of a console block, and compares what it says with what the block shows."""

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

# What goes on until it is ended is looked at once instead: settings, directories and budgets are those of the real run.
_ENDLESS: Final = (
    (re.compile(r"^lockcache-daemon\b(?!.*--(once|dry-run|help)).*(?<!&)$"), " --dry-run"),
    (re.compile(r"^lockcache top\b(?!.*--once).*$"), " --once"),
)
_HANG_SECONDS: Final = 60


class Step(NamedTuple):
    """A command, its exit codes, and lines that it says: in this order, others between them."""

    command: str
    exit_codes: tuple[int, ...]
    says: tuple[str, ...]


def steps(text: str) -> Iterator[Step]:
    """The commands of a block: behind `$ `, and `> ` where one goes on."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        count = next((n for n, line in enumerate(lines[1:], 1) if not line.startswith("> ")), len(lines))
        command = "\n".join([lines[0], *(line[2:] for line in lines[1:count])])
        code = re.search(r"# exit code (\d+)(?: or (\d+))?$", command)
        codes = tuple(int(number) for number in code.groups() if number) if code else (0,)
        yield Step(command, codes, tuple(line for line in lines[count:] if line.strip()))


class Console:
    """A shell whose variables and directory last from one command to the next; under ``root`` is what stands for /."""

    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self._root = root
        self._environment = {**os.environ, **environment}
        self._state = root / ".state"
        self._state.touch()
        self._said = root / ".said"
        self._groups: list[int] = []

    def run(self, step: Step) -> None:
        """Raises AssertionError for another exit code, and for a line that is not said."""
        code, said = self._run(self.inside(step.command))
        assert code in step.exit_codes, f"exit code {code}: {step.command}\n{said}"
        missing = _first_missing(step.says, said)
        assert missing is None, f"{step.command}\ndoes not say\n{missing}\nbut\n{said}"

    def inside(self, text: str) -> str:
        """The text with the places that the documents take as examples moved under the root."""
        return re.sub(
            r"(?<![\w.~/}-])/(?=(scratch|shared|golden|image|etc/lockcache|var/lib)\b)", f"{self._root}/", text
        )

    def close(self) -> None:
        """End what was left running in the background."""
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
        # Both to a file: what goes on in the background would keep a pipe open.
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


def environment(root: Path) -> dict[str, str]:
    """A home of its own, the programs of this environment first, and nothing that says where a cache is."""
    home = root / "home"
    return {
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
        # Blanks around the dots are for reading.
        pattern = re.compile(".*".join(re.escape(part) for part in re.split(r" ?\.\.\. ?", _even(line))))
        if line.strip() != "..." and not any(pattern.fullmatch(found) for found in left):
            return line
    return None


def _even(line: str) -> str:
    return " ".join(line.split())
