# SPDX-License-Identifier: Apache-2.0
"""The README and the guides, followed in environments that have the wheel, and nothing of the checkout."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest

from tests.docs.follow_page import follow_twice
from tests.docs.pages import BY_NEWCOMERS, PAGES, PROJECT, TYPED_AGAIN, blocks, name

FOLLOWED = [page for page in PAGES if page in TYPED_AGAIN or page.parent.name == "guides"]
#: What the material of these tests needs, and no reader.
_MATERIAL = ("pytest", "pyyaml")


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which a reader installed the wheel."""
    return _install(tmp_path_factory.mktemp("reader") / "venv", f"{wheel}[cuda,cli,daemon,redis]", *_MATERIAL)


@pytest.fixture(scope="module")
def cuda_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which nothing but ``lockcache[cuda]`` was asked for."""
    return _install(tmp_path_factory.mktemp("cuda") / "venv", f"{wheel}[cuda]")


def _install(folder: Path, *requirements: str) -> Path:
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True, capture_output=True)
    return python


def _reader() -> dict[str, str]:
    """Returns a reader's variables: no checkout, no cache, and no CUDA toolkit."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LOCKCACHE", "CUDA"))}


@pytest.fixture
def material(tmp_path: Path) -> Path:
    """A folder with the documents and what their examples look at, without the code."""
    folder = tmp_path / "material"
    folder.mkdir()
    for each in ("tests", "docs", "README.md"):
        (folder / each).symlink_to(PROJECT / each)
    return folder


@pytest.mark.long
@pytest.mark.cuda
@pytest.mark.timeout(600)  # 600 MB of NVIDIA's compilers, into an environment of its own
@pytest.mark.parametrize("page", FOLLOWED, ids=name)
def test_a_reader_with_the_wheel_alone_can_follow(page: Path, python: Path, material: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    environment = {**_reader(), "PYTHONPATH": str(material)}
    follow_twice(python, material / page.relative_to(PROJECT), root, environment)


@pytest.mark.long
@pytest.mark.cuda
@pytest.mark.timeout(600)  # 600 MB of NVIDIA's compilers, into an environment of its own
@pytest.mark.parametrize("page", BY_NEWCOMERS, ids=name)
def test_the_extra_cuda_is_all_that_a_kernel_with_cuda_fp16_needs(
    page: Path, cuda_python: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    code = "\n".join(block.text for block in blocks(page) if block.language == "python" and not block.file)
    assert "#include <cuda_fp16.h>" in code
    program.write_text(f"{code}\nprint(find_nvidia_header_directory('cudart'))\n")
    environment = {**_reader(), "HOME": str(tmp_path)}
    for _ in range(2):
        ran = subprocess.run(
            [cuda_python, program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        # Not those of a toolkit of this machine, which a reader may lack.
        assert Path(ran.stdout.strip().splitlines()[-1]).is_relative_to(cuda_python.parents[1])


@pytest.mark.long
def test_the_reader_has_no_code_of_the_checkout(python: Path, material: Path) -> None:
    code = "import lockcache, lockcache_daemon, lockcache_stress as s; print(lockcache.__file__, s.__path__)"
    environment = {**os.environ, "PYTHONPATH": str(material)}
    said = subprocess.run(
        [python, "-c", code], cwd=material, env=environment, capture_output=True, text=True, check=True
    )
    assert str(python.parents[1]) in said.stdout
    assert str(PROJECT) not in said.stdout
