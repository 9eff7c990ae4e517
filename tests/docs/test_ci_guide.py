# SPDX-License-Identifier: Apache-2.0
"""A reader follows the CI guide: the workflow's own commands, in a repository of his and an empty environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockcache import __version__
from tests.docs.pages import PROJECT, blocks

# The reader's own project: one test, which compiles a kernel and leaves what the cache reports.
_TEST = """
import json
from cuda.core import ProgramOptions
from lockcache import FileStreamProgramCache
from lockcache.cuda import Program

def test_a_kernel():
    with FileStreamProgramCache() as cache:
        source = "template <typename T> __global__ void scale(T *x, T a) { x[threadIdx.x] *= a; }"
        program = Program(source, "c++", ProgramOptions(arch="sm_90"))
        assert program.compile("cubin", name_expressions=["scale<float>"], cache=cache).code
        stats = cache.stats()
    with open("stats.json", "w") as file:
        json.dump({"hits": stats.hits, "puts": stats.puts}, file)
"""


def _workflow() -> dict[str, Any]:
    [text] = [block.text for block in blocks(PROJECT / "docs/guides/ci.md") if block.language == "yaml"]
    [job] = yaml.safe_load(text)["jobs"].values()
    return job  # type: ignore[no-any-return]


def _run(command: str, repository: Path, environment: dict[str, str]) -> None:
    words = ["bash", "-e", "-c", command]
    ran = subprocess.run(words, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"


@pytest.mark.long
@pytest.mark.timeout(600)  # 600 MB of NVIDIA's compilers, into an environment of its own
def test_the_workflow_works_in_a_repository_of_a_readers(wheel: Path, tmp_path: Path) -> None:
    repository, home = tmp_path / "repository", tmp_path / "home"
    for folder in (repository, home):
        folder.mkdir(mode=0o700)
    (repository / "test_kernel.py").write_text(_TEST)
    venv.create(tmp_path / "venv", with_pip=True)
    # This wheel, also where an index has another version.
    (tmp_path / "constraint.txt").write_text(f"lockcache=={__version__}\n")
    job = _workflow()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LOCKCACHE"))}
    environment |= {
        "PATH": f"{tmp_path / 'venv' / 'bin'}:/usr/bin:/bin",
        "HOME": str(home),
        "PIP_FIND_LINKS": str(wheel.parent),
        "PIP_CONSTRAINT": str(tmp_path / "constraint.txt"),
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip")),
        **{name: value.replace("${{ github.workspace }}", str(repository)) for name, value in job["env"].items()},
    }
    commands = [step["run"] for step in job["steps"] if "run" in step]
    found = []
    for _ in range(2):
        for command in commands:
            _run(command, repository, environment)
        found.append(json.loads((repository / "stats.json").read_text()))
        shutil.rmtree(environment["LOCKCACHE_DIR"])  # the next runner has only what actions/cache restores
    assert [each["puts"] for each in found] == [1, 0]
    assert found[1]["hits"] == 1
