# SPDX-License-Identifier: Apache-2.0
"""Identities of memoized functions: a second function under one identity is refused, its code loaded again is not."""

from __future__ import annotations

import importlib
import importlib.util
import re
import runpy
import subprocess
import sys
import unittest.mock
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lockcache import FileStreamProgramCache, InMemoryProgramCache
from tests.matrix_sampling import all_but

HEAD = """
import functools
from lockcache import FileStreamProgramCache
cache = FileStreamProgramCache(CACHE)

def shift(function):
    @functools.wraps(function)
    def shifted(number):
        return b"<" + function(number + 1) + b">"
    return shifted
"""
SECOND = r"build cannot be memoized: module \w+ has another memoized function of this name and version.*version=\.\.\."


@pytest.fixture
def loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Returns what writes the source of one module, and loads it, as a program does whose author edits it."""
    name = f"edited_{re.sub(r'[^a-z0-9]', '_', tmp_path.name)}"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(source: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(HEAD.replace("CACHE", repr(str(tmp_path / "cache"))) + source)
        importlib.invalidate_caches()
        return importlib.reload(sys.modules[name]) if name in sys.modules else importlib.import_module(name)

    yield load
    sys.modules.pop(name, None)


PLAIN = "@cache.memoize\ndef build(number): return b'one %d' % number\n"
WRAPPED = "@cache.memoize\n@shift\ndef build(number, *, flags=('-G', 1)): return b'one %d' % number\n"


@pytest.mark.parametrize("source", [PLAIN, WRAPPED], ids=["plain", "wrapped"])
@pytest.mark.parametrize("moved", ["", "\n# A line above.\n\n"], ids=["as it was", "at another line"])
def test_a_module_that_is_loaded_again_with_the_same_function_shares(loads, source: str, moved: str) -> None:
    first = loads(source).build(1)
    again = loads(moved + source)
    assert again.build(1) == first
    assert again.cache.stats().hits == 1


CHANGES = {
    "body": (PLAIN, PLAIN.replace("one", "two")),
    "body below a decorator": (WRAPPED, WRAPPED.replace("one", "two")),
    "default": (WRAPPED, WRAPPED.replace("'-G'", "'-O'")),
    "type of a default": (WRAPPED, WRAPPED.replace("1)", "True)")),
    "decorator": (WRAPPED, WRAPPED.replace("@shift\n", "")),
    "inner function": (
        "@cache.memoize\ndef build(number): return (lambda: b'one')()\n",
        "@cache.memoize\ndef build(number): return (lambda: b'two')()\n",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_module_that_is_loaded_again_with_another_function_is_refused_until_its_version_changes(loads, change):
    before, after = CHANGES[change]
    loads(before).build(1)
    with pytest.raises(ValueError, match=SECOND):
        loads(after).build(1)
    changed = loads(after.replace("@cache.memoize", "@cache.memoize(version='2')"))
    assert changed.build(1) == changed.build.__wrapped__(1)


@pytest.mark.parametrize("is_called_first", [True, False])
def test_of_two_functions_that_take_one_name_after_the_other_one_is_refused(loads, is_called_first: bool) -> None:
    module = loads(
        "def build(number): return b'one'\nfirst = cache.memoize(build)\n"
        f"if {is_called_first}: first(1)\n"
        "def build(number): return b'two'\nsecond = cache.memoize(build)\n"
    )
    refused, other = (module.second, module.first) if is_called_first else (module.first, module.second)
    with pytest.raises(ValueError, match=r"another .*function of this name"):
        refused(1)
    assert other(1) == (b"one" if is_called_first else b"two")
    assert module.cache.memoize(version="2")(module.build)(1) == b"two"


def test_classes_that_a_loop_makes_share_nothing(loads) -> None:
    module = loads(
        "made = []\nfor word in (b'one', b'two'):\n    class Kernel:\n        text = word\n        @staticmethod\n"
        "        @cache.memoize\n        def build(number): return Kernel.text\n"
        "    made.append((Kernel.build, Kernel.build(1)) if word == b'one' else (Kernel.build, None))\n"
    )
    assert module.made[0][1] == b"one"
    with pytest.raises(ValueError, match=r"Kernel\.build cannot be memoized.*version="):
        module.made[1][0](1)


def test_memoized_functions_of_two_versions_of_one_name_are_both_memoized(loads) -> None:
    module = loads(
        "@cache.memoize(version='1')\ndef build(number): return b'one'\nfirst = build\n"
        "@cache.memoize(version='2')\ndef build(number): return b'two'\n"
    )
    assert (module.first(1), module.build(1), module.first(1)) == (b"one", b"two", b"one")


def test_one_function_is_memoized_by_two_caches_under_its_own_name(loads) -> None:
    module = loads("def build(number): return b'one'\nfirst = cache.memoize(build)\nbuild = cache.memoize(build)\n")
    other = InMemoryProgramCache().memoize(module.build.__wrapped__)
    assert (module.first(1), module.build(1), other(1)) == (b"one",) * 3


BUILD = "def build(number): return b'%d' % number\n"
STACKS = {
    "around a decorator": f"@cache.memoize\n@shift\n@cache.memoize\n{BUILD}",
    "around two": f"@cache.memoize\n@shift\n@shift\n@cache.memoize\n{BUILD}",
    "below another decorator": f"@shift\n@cache.memoize\n@shift\n@cache.memoize\n{BUILD}",
    "directly": f"@cache.memoize\n@cache.memoize\n{BUILD}",
}


@pytest.mark.parametrize("stack", STACKS)
def test_memoized_functions_around_another_share_no_keys(loads, stack: str) -> None:
    bare = loads(STACKS[stack].replace("@cache.memoize\n", "")).build
    expected = [bare(number) for number in (1, 2, 3)]
    stacked = loads(STACKS[stack]).build
    for order in ((1, 2, 3), (3, 2, 1)):
        assert [stacked(number) for number in order] == [expected[number - 1] for number in order]


class Model:
    def __init__(self, word: str) -> None:
        self.word = word

    def compile(self, number: int) -> bytes:
        return f"{self.word} {number}".encode()

    @classmethod
    def of_class(cls, number: int) -> bytes:
        return f"{cls.__name__} {number}".encode()


class Below(Model):
    pass


def test_the_key_of_a_bound_method_is_its_users() -> None:
    cache = InMemoryProgramCache()
    for model in (Model("one"), Model("two"), Model("one")):
        build = cache.memoize(key=lambda number, model=model: f"{model.word} {number}")(model.compile)
        assert build(1) == model.compile(1)
    for kind in (Model, Below):
        assert cache.memoize(key=lambda number, kind=kind: f"{kind.__name__} {number}")(kind.of_class)(1) == (
            kind.of_class(1)
        )
    assert (len(cache), cache.stats().hits) == (4, 1)
    with pytest.raises(ValueError, match=r"Model\.compile .* bound to an object.*memoize\(key=\.\.\.\)"):
        cache.memoize(Model("one").compile)


UNWRAPPING = {
    "decorator without functools.wraps": (
        "def unnamed(function):\n    def call(*args): return function(*args)\n    return call\n"
        "@unnamed\n@cache.memoize\ndef build(number): return b'one'\n"
    ),
    "class that holds it": (
        "class Command:\n    def __init__(self, function): self.function = function\n"
        "    def __call__(self, *args): return self.function(*args)\n"
        "@Command\n@cache.memoize\ndef build(number): return b'one'\n"
    ),
    "name that is deleted": "@cache.memoize\ndef gone(number): return b'one'\nbuild = gone\ndel gone\n",
}


@pytest.mark.parametrize("kind", UNWRAPPING)
def test_a_function_whose_name_leads_to_no_other_function_is_memoized(loads, kind: str) -> None:
    module = loads(UNWRAPPING[kind])
    assert (module.build(1), module.build(1), module.cache.stats().hits) == (b"one", b"one", 1)


def test_a_function_is_memoized_while_a_mock_has_its_name(loads) -> None:
    module = loads(PLAIN)
    with unittest.mock.patch.object(module, "build", side_effect=module.build) as mocked:
        assert mocked(1) == b"one 1"


def test_functions_of_plugins_that_are_no_modules_are_memoized(tmp_path: Path) -> None:
    for name in ("first", "second"):
        source = HEAD.replace("CACHE", repr(str(tmp_path / "cache"))) + PLAIN.replace("one", name)
        (tmp_path / f"{name}.py").write_text(source)
        spec = importlib.util.spec_from_file_location(f"plugin_{name}", tmp_path / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        plugin = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(plugin)
        assert plugin.build(1) == f"{name} 1".encode()
    for name in ("first", "second"):
        assert runpy.run_path(str(tmp_path / f"{name}.py"))["build"](1) == f"{name} 1".encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "runner", all_but(["cProfile"], ["cProfile", "profile", "trace --count -C ."]), ids=lambda runner: runner.split()[0]
)
def test_a_script_has_the_same_keys_below_a_profiler(tmp_path: Path, runner: str) -> None:
    source = HEAD.replace("CACHE", repr(str(tmp_path / "cache"))) + PLAIN + "print(build(1), cache.stats().hits)\n"
    (tmp_path / "script.py").write_text(source)

    def run(*options: str) -> str:
        command = [sys.executable, *options, "script.py"]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert run().startswith("b'one 1' 0\n")
    assert run("-m", *runner.split()).lstrip().startswith("b'one 1' 1\n")


def test_a_cell_that_is_run_again_shares_and_one_that_changed_is_refused(tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(tmp_path / "cells.py")}
    names["cache"] = cache = FileStreamProgramCache(tmp_path / "cache")
    for _ in range(2):
        exec(compile(PLAIN, "<cell>", "exec"), names)
        assert names["build"](1) == b"one 1"
    assert cache.stats().hits == 1
    exec(compile(PLAIN.replace("one", "two"), "<cell>", "exec"), names)
    with pytest.raises(ValueError, match=SECOND):
        names["build"](1)


def test_a_callable_of_c_without_weak_references_is_memoized() -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(TypeError, match="what negative returned must be bytes"):
        InMemoryProgramCache().memoize(numpy.negative)(1)
