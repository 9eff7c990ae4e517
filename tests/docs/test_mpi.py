# SPDX-License-Identifier: Apache-2.0
"""The documents' lines with mpiexec work with each MPI that is here, MPICH and Open MPI, as they stand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.console import Console, Step, environment, steps
from tests.docs.pages import PROJECT, blocks

_GUIDE = PROJECT / "docs" / "guides" / "mpi-slurm.md"
_FILE_SYSTEMS = PROJECT / "docs" / "operations" / "file-systems.md"


def _mpiexecs() -> Iterator[tuple[str, str]]:
    """Yields each kind of mpiexec with the program of it that is here, or nothing."""
    places = [str(Path(sys.executable).parent), *os.environ["PATH"].split(os.pathsep)]
    found = [path for place in places if (path := shutil.which("mpiexec", path=place)) is not None]
    found += [path for kind in ("openmpi", "mpich") if (path := shutil.which(f"mpiexec.{kind}")) is not None]
    kinds = {path: _kind_of(path) for path in found}
    for kind in ("MPICH", "Open MPI"):
        yield kind, next((path for path in kinds if kinds[path] == kind), "")


def _kind_of(mpiexec: str) -> str:
    said = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
    return "Open MPI" if re.search(r"Open ?MPI|OpenRTE|PRTE", said, re.IGNORECASE) else "MPICH"


@pytest.fixture(params=_mpiexecs(), ids=lambda found: found[0].replace(" ", ""))
def mpi(request: pytest.FixtureRequest) -> tuple[str, str]:
    kind, mpiexec = request.param
    if not mpiexec:
        pytest.skip(f"{kind} is not installed")
    return kind, mpiexec


@pytest.fixture
def console(mpi: tuple[str, str], tmp_path: Path) -> Iterator[Console]:
    """A shell whose mpiexec is that of this MPI, and which takes this machine for two nodes if a line asks for two."""
    for folder in ("work", "bin", "home", "shared"):
        (tmp_path / folder).mkdir(mode=0o700)
    # Not a link to it: MPICH looks for its other programs where it was started.
    _make_program(tmp_path / "bin" / "mpiexec", f'exec "{mpi[1]}" "$@"')
    (tmp_path / "nodes").write_text("a\nb\n" if mpi[0] == "MPICH" else "localhost slots=1\n127.0.0.2 slots=1\n")
    # In place of ssh: whichever node it is to reach, the command runs here.
    reach = tmp_path / "reach"
    _make_program(reach, 'shift\nexec sh -c "$*"')
    variables = environment(tmp_path)
    nodes = {
        "TWO_HYDRA_LAUNCHER": "fork",
        "TWO_HYDRA_HOST_FILE": str(tmp_path / "nodes"),
        "TWO_OMPI_MCA_plm_rsh_agent": str(reach),
        "TWO_OMPI_MCA_orte_default_hostfile": str(tmp_path / "nodes"),
    }
    made = Console(tmp_path, {**variables, **nodes, "PATH": f"{tmp_path / 'bin'}:{variables['PATH']}"})
    yield made
    made.close()


def _make_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)


@pytest.mark.long
@pytest.mark.cuda
def test_the_ranks_of_the_guide_compile_once(console: Console, tmp_path: Path) -> None:
    [program] = [block.text for block in blocks(_GUIDE) if block.file == "job.py"]
    (tmp_path / "work" / "job.py").write_text(program)
    [line] = [step for block in blocks(_GUIDE) for step in steps(block.text) if "mpiexec" in step.command]
    console.run(line)


@pytest.mark.long
def test_the_doctor_of_two_nodes_is_started_as_the_page_says(mpi: tuple[str, str], console: Console) -> None:
    lines = [step.command for block in blocks(_FILE_SYSTEMS) for step in steps(block.text)]
    [command] = [line for line in lines if line.startswith("mpiexec") and mpi[0] in line.partition("#")[2]]
    two = " ".join(f"{name}=$TWO_{name}" for name in _NODES)
    # Both find each other, and that they are on one machine.
    says = ("two hosts ... not tested ...", "not certified: see what is not tested above")
    console.run(Step(f"{two} {command.partition('#')[0]} 2>&1 # exit code 2", (2,), says))


_NODES = ("HYDRA_LAUNCHER", "HYDRA_HOST_FILE", "OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_default_hostfile")
