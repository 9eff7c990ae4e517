# SPDX-License-Identifier: Apache-2.0
"""The recipes for conda-forge and Spack ask for what the package asks for, and are read by the tools that are here."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PROJECT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_CONDA = PROJECT / "docs" / "recipes" / "conda-forge" / "recipe.yaml"
_SPACK = PROJECT / "docs" / "recipes" / "spack" / "package.py"


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((PROJECT / "pyproject.toml").read_text())


def _asked(requirements: list[str]) -> dict[str, str]:
    """Returns the least version of each package."""
    found = (re.match(r"([\w-]+)>=([\d.]+)", each) for each in requirements)
    return {match[1]: _short(match[2]) for match in found if match}


def _short(version: str) -> str:
    return re.sub(r"(\.0)+$", "", version)


def test_the_conda_recipe_asks_for_what_the_package_does(pyproject: dict[str, Any]) -> None:
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load(_CONDA.read_text())
    project = pyproject["project"]
    assert recipe["context"]["version"] == project["version"]
    assert recipe["context"]["python_min"] == project["requires-python"].removeprefix(">=")
    scripts = dict(each.split(" = ") for each in recipe["build"]["python"]["entry_points"])
    assert scripts == project["scripts"]
    run = [each.replace(" ", "").replace("python-xxhash", "xxhash") for each in recipe["requirements"]["run"]]
    assert _asked(run) == _asked(project["dependencies"])
    host = [each.replace(" ", "") for each in recipe["requirements"]["host"]]
    assert _asked(host) == _asked(pyproject["build-system"]["requires"])
    assert recipe["about"]["license"] == project["license"]


def test_rattler_build_renders_the_conda_recipe(pyproject: dict[str, Any], tmp_path: Path) -> None:
    rattler_build = pytest.importorskip("rattler_build", reason="needs py-rattler-build")
    # It writes the text into a folder, else into one in /tmp that it leaves.
    recipe = rattler_build.Stage0Recipe.from_yaml(_CONDA.read_text(), recipe_dir=tmp_path)
    [variant] = recipe.render(rattler_build.VariantConfig())
    assert str(variant.recipe.package.version) == pyproject["project"]["version"]
    with pytest.raises(Exception, match="unknown"):
        rattler_build.Stage0Recipe.from_yaml(
            _CONDA.read_text().replace("requirements:", "requirement:"), recipe_dir=tmp_path
        )


def test_the_spack_recipe_asks_for_what_the_package_does(pyproject: dict[str, Any]) -> None:
    [recipe] = [node for node in ast.parse(_SPACK.read_text()).body if isinstance(node, ast.ClassDef)]
    assert recipe.name == "PyLockcache"
    directives: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for node in recipe.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            keywords = {each.arg: ast.unparse(each.value).strip("'") for each in call.keywords}
            directives.setdefault(ast.unparse(call.func), []).append((ast.literal_eval(call.args[0]), keywords))
    assert set(directives) == {"license", "version", "variant", "conflicts", "depends_on"}
    project = pyproject["project"]
    assert [name for name, _ in directives["version"]] == [project["version"]]
    wanted = dict(name.removeprefix("py-").rstrip(":").split("@") for name, _ in directives["depends_on"])
    extras = [*project["optional-dependencies"]["metrics"], "zstandard>=0.23"]
    asked = _asked([*project["dependencies"], *extras, *pyproject["build-system"]["requires"]])
    assert {name: _short(version) for name, version in wanted.items()} == {**asked, "python": "3.10"}
    conditions = [given.get("when", "") for _, given in directives["depends_on"]]
    assert {when[1:] for when in conditions if when[:1] == "+"} == {name for name, _ in directives["variant"]}
