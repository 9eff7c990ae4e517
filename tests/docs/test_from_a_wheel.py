"""The README and the guides, followed in an environment that has the wheel, and nothing of the checkout."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, PROJECT, name

FOLLOWED = [page for page in PAGES if page.name in ("README.md", "quickstart.md") or page.parent.name == "guides"]
#: What the material of these tests needs, and no reader.
_MATERIAL = ("pytest", "pyyaml")


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which a reader installed the wheel."""
    folder = tmp_path_factory.mktemp("reader") / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    command = [python, "-m", "pip", "install", "--quiet", f"{wheel}[cuda,cli,daemon,redis]", *_MATERIAL]
    subprocess.run(command, check=True, capture_output=True)
    return python


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
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LOCKCACHE"))}
    environment["PYTHONPATH"] = str(material)
    shown = material / page.relative_to(PROJECT)
    command = [python, "-m", "tests.docs.follow_page", shown, root]
    ran = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.long
def test_the_reader_has_no_code_of_the_checkout(python: Path, material: Path) -> None:
    code = "import lockcache, lockcache_daemon, lockcache_stress as s; print(lockcache.__file__, s.__path__)"
    environment = {**os.environ, "PYTHONPATH": str(material)}
    said = subprocess.run(
        [python, "-c", code], cwd=material, env=environment, capture_output=True, text=True, check=True
    )
    assert str(python.parents[1]) in said.stdout
    assert str(PROJECT) not in said.stdout
