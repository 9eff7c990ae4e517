# SPDX-License-Identifier: Apache-2.0
"""The hook that installs adapters: a framework is imported as without the hook, by whatever code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HOOK = ROOT / "lockcache" / "integrations" / "hook"

# A finder of the program's for "cupy" and "other", whose loader is LOADER; the adapter says when it is installed.
_PROGRAM = """
import importlib.machinery, importlib.util, sys
import lockcache.integrations.cupy as adapter
adapter.install = lambda: print("installed, cupy is whole:", hasattr(sys.modules["cupy"], "whole"))

class Loader:
    MEMBERS
    def create_module(self, spec): return None
    def exec_module(self, module):
        print("loads", module.__name__, module.__loader__ is LOADER, module.__spec__.loader is LOADER)
        module.whole = True

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, LOADER) if name in ("cupy", "other") else None

LOADER = Loader()
sys.meta_path.insert(1, Finder)
"""
_LOADED = ["loads other True True", "loads cupy True True", "installed, cupy is whole: True", "loads other True True"]


def run(program: str, tmp_path: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(HOOK), str(ROOT), str(tmp_path)])
    environment = {**os.environ, "PYTHONPATH": paths, "LOCKCACHE_INSTALL": "cupy", **variables}
    command = [sys.executable, *options, "-c", program]
    return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("members", ["pass", "__slots__ = ()"])
def test_a_loader_that_others_share_or_that_takes_no_attribute_is_left_as_it_is(members: str, tmp_path: Path) -> None:
    program = _PROGRAM.replace("MEMBERS", members) + (
        "import other, cupy; sys.modules.pop('other'); import other; print(*vars(LOADER) if MEMBERS else ())\n"
    ).replace("MEMBERS", str(members == "pass"))
    ran = run(program, tmp_path)
    assert (ran.stdout.splitlines(), ran.stderr, ran.returncode) == ([*_LOADED, ""], "", 0)


@pytest.mark.slow
def test_a_loader_that_is_a_class_and_one_that_makes_its_module_itself_still_load(tmp_path: Path) -> None:
    as_class = _PROGRAM.replace("MEMBERS", "pass").replace("LOADER = Loader()", "LOADER = Loader")
    as_class = as_class.replace("def create_module(self, ", "@staticmethod\n    def create_module(")
    as_class = as_class.replace("def exec_module(self, ", "@staticmethod\n    def exec_module(")
    ran = run(f"{as_class}import other, cupy; del sys.modules['other']; import other", tmp_path)
    assert (ran.stdout.splitlines(), ran.returncode) == (_LOADED, 0), ran
    alone = _PROGRAM.replace("MEMBERS", "def load_module(self, name): return sys.modules.setdefault(name, sys)")
    alone = alone.replace("exec_module", "unused").replace("create_module", "also_unused")
    ran = run(f"{alone}import cupy; print(cupy is sys)", tmp_path, "-W", "ignore")
    assert (ran.stdout, ran.returncode) == ("True\n" if sys.version_info < (3, 15) else "", 0), ran


@pytest.mark.slow
def test_what_is_found_passes_for_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("import sys; print('runs', __loader__ is __spec__.loader)\n")
    program = (
        "import copy, importlib, importlib.machinery, importlib.util, lockcache.integrations.cupy as adapter\n"
        "adapter.install = lambda: print('installed')\n"
        "spec = importlib.util.find_spec('cupy'); copy.copy(spec.loader)\n"
        "print(isinstance(spec.loader, importlib.machinery.SourceFileLoader), spec.loader.get_source('cupy')[:6])\n"
        "spec.loader = importlib.util.LazyLoader(spec.loader); module = importlib.util.module_from_spec(spec)\n"
        "import sys; sys.modules['cupy'] = module; spec.loader.exec_module(module); print('lazy'); module.sys\n"
        "print(type(module.__loader__).__name__); importlib.reload(module)"
    )
    ran = run(program, tmp_path)
    lines = ["True import", "lazy", "runs True", "installed", "SourceFileLoader", "runs True"]
    assert (ran.stdout.splitlines(), ran.returncode) == (lines, 0), ran


@pytest.mark.slow
def test_an_adapter_that_fails_where_nobody_can_be_told_fails_no_import(tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("whole = True\n")
    program = (
        "import lockcache.integrations.cupy as adapter; adapter.install = None; {}; import cupy; print(cupy.whole)"
    )
    for silenced in ("import sys; sys.stderr = None", "import sys; sys.stderr.close()"):
        ran = run(program.format(silenced), tmp_path)
        assert (ran.stdout, ran.returncode) == ("True\n", 0), ran


# Says in each process that it runs in that it was run, and how often the hook is there.
_OWN = """
import os, sys
finders = [finder for finder in sys.meta_path if type(finder).__name__ == "_Installer"]
os.write(1, b"%d own, %d hook\\n" % (sys.version_info[0], len(finders)))
"""


@pytest.mark.slow
def test_a_child_whose_path_is_made_of_sys_path_has_the_adapters_too(tmp_path: Path) -> None:
    """As the compile workers of Inductor, which starts them so. The variable itself is for the parent alone."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text(_OWN)
    paths = os.pathsep.join([str(HOOK), str(ROOT), str(tmp_path / "own")])
    child = [sys.executable, "-c", "import os; print('child', 'PYTHONPATH' in os.environ)"]
    program = (
        "import os, subprocess, sys; del os.environ['PYTHONPATH']\n"
        f"subprocess.run({child}, env={{**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}}, check=True)"
    )
    ran = run(program, tmp_path, PYTHONPATH=paths)
    assert (ran.stdout.splitlines(), ran.stderr) == (["3 own, 1 hook", "3 own, 1 hook", "child True"], "")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_child_of_multiprocessing_has_the_adapters_and_its_own_sitecustomize_once(
    method: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_OWN)
    (tmp_path / "cupy.py").touch()
    (tmp_path / "program.py").write_text(
        "import lockcache.integrations.cupy as adapter, multiprocessing\n"
        "adapter.install = lambda: print('installed', flush=True)\n"
        "def target(): import cupy\n"
        "if __name__ == '__main__':\n"
        f"    process = multiprocessing.get_context('{method}').Process(target=target)\n"
        "    process.start(); process.join(); exit(process.exitcode)\n"
    )
    ran = run("import runpy; runpy.run_path('program.py', run_name='__main__')", tmp_path)
    assert ran.returncode == 0, ran
    lines = ran.stdout.splitlines()
    assert set(lines) == {"3 own, 1 hook", "installed"}
    assert lines.count("installed") == 1


@pytest.mark.slow
@pytest.mark.parametrize("order", ["hook hook", "hook other", "other hook", "other hook other"])
def test_a_command_within_another_command_runs_the_own_sitecustomize_once(order: str, tmp_path: Path) -> None:
    """Also where the two commands are of two lockcaches, whose hooks find each other."""
    (tmp_path / "sitecustomize.py").write_text(_OWN)
    hooks = {"hook": HOOK, "other": shutil.copytree(HOOK, tmp_path / "other")}
    paths = [*(str(hooks[name]) for name in order.split()), str(ROOT), str(tmp_path)]
    ran = run("print('program')", tmp_path, PYTHONPATH=os.pathsep.join(paths))
    assert (ran.stdout.splitlines(), ran.stderr) == (["3 own, 1 hook", "program"], "")


def find_python(version: str) -> str:
    """Returns a Python of this version. Skips the test without one."""
    found = shutil.which(f"python{version}")
    # Of pyenv what is found runs only where that version is chosen.
    others = Path(found).parents[1].glob(f"versions/{version}*/bin/python{version}") if found else []
    for python in filter(None, (found, *map(str, others))):
        if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    pytest.skip(f"needs Python {version}")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7", "3.8"])
def test_a_python_that_is_too_old_runs_its_own_sitecustomize_and_says_nothing(version: str, tmp_path: Path) -> None:
    python = find_python(version)
    (tmp_path / "sitecustomize.py").write_text(_OWN)
    paths = os.pathsep.join([str(HOOK), str(tmp_path)])
    own = f"{version[0]} own, {int(version > '3.6')} hook\n"
    for expected in (f"{own}program\n", "program\n"):
        environment = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "LOCKCACHE_INSTALL": "cupy"}
        command = [python, "-c", "print('program')"]
        ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ran.stdout, ran.stderr, ran.returncode) == (expected, "", 0)
        paths = str(HOOK)
