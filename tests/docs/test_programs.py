# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/examples: run twice, as on two nodes that share a directory; the second compiles nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.pages import PROJECT

_FOLDER = PROJECT / "docs" / "examples"


class _Needs(NamedTuple):
    #: The module that it imports.
    module: str
    #: The environment of `make frameworks` that has it; none if the tests' own has.
    environment: str = ""
    #: The words in front of the program.
    launcher: tuple[str, ...] = ()


PROGRAMS = {
    "cuda_core": _Needs("cuda.core"),
    "mpi": _Needs("mpi4py", launcher=("mpiexec", "-n", "3")),
    "torch_compile": _Needs("torch", "inductor-2.13"),
    "triton_kernel": _Needs("triton", "triton"),
    "cute_dsl": _Needs("cutlass", "cute"),
}


def test_each_program_is_run_here_and_has_its_line_on_the_page() -> None:
    assert {path.stem for path in _FOLDER.glob("*.py")} == set(PROGRAMS)
    page = (_FOLDER / "README.md").read_text()
    assert [name for name in PROGRAMS if f"| `{name}.py` |" not in page] == []


def _interpreter(needs: _Needs) -> str:
    """Returns a Python that has the framework. Skips the test where there is none."""
    if find_spec(needs.module.partition(".")[0]) is not None:
        return sys.executable
    folder = PROJECT / "build" / "frameworks" / (needs.environment or "none")
    if not (folder / "stamp").exists():
        pytest.skip(f"{needs.module} is not installed: make frameworks FRAMEWORKS={needs.environment}")
    return str(folder / "bin" / "python")


@pytest.mark.slow
@pytest.mark.cuda
@pytest.mark.timeout(600)  # on a busy machine torch takes minutes
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] * bool(needs.environment or needs.launcher))
        for name, needs in PROGRAMS.items()
    ],
)
def test_the_second_start_compiles_nothing(name: str, tmp_path: Path) -> None:
    needs = PROGRAMS[name]
    python = _interpreter(needs)
    path = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])
    if needs.launcher and shutil.which(needs.launcher[0], path=path) is None:
        pytest.skip(f"{needs.launcher[0]} is not installed")
    for start, most in (("first", []), ("second", ["--most-compiles", "0"])):
        command = [python, "-m", "lockcache", "run", "--dir", tmp_path / "kernels", *most, "--"]
        ran = subprocess.run(
            [*command, *needs.launcher, python, _FOLDER / f"{name}.py"],
            cwd=tmp_path,
            env={**_reader(), "HOME": str(tmp_path), "PATH": path, **_own_caches(tmp_path / start)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{start} start:\n{ran.stdout}{ran.stderr}"
        counted = ran.stderr.splitlines()[-1]
        assert (" 0 compiled" in counted) == (start == "second"), counted
        assert start == "first" or " 0 hits" not in counted, counted


def _reader() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("LOCKCACHE", "TRITON", "TORCH"))}


def _own_caches(folder: Path) -> dict[str, str]:
    """Returns variables for caches of the frameworks' own: as on another node, where they are empty."""
    names = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUTE_DSL_CACHE_DIR")
    return {name: str(folder / name) for name in names}
