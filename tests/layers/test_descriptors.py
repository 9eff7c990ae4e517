# SPDX-License-Identifier: Apache-2.0
"""The contract of descriptors notices each of the faults that it names, in a room of one module made for it."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import grimp
import pytest

from tests.layers import doors
from tests.layers.descriptors import DescriptorsContract


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """The faults of a module with this text, with these exceptions."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def find(text: str, *allowed: str) -> list[str]:
        (tmp_path / "lockcache_cell").mkdir()
        (tmp_path / "lockcache_cell" / "__init__.py").touch()
        (tmp_path / "lockcache_cell" / "module.py").write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        graph = grimp.build_graph("lockcache_cell", cache_dir=None)
        options = {"rooms": ["lockcache_cell"], "allowed": allowed, "name": "descriptors", "type": "descriptors"}
        contract = DescriptorsContract("descriptors", session_options={}, contract_options=options)
        return list(contract.check(graph, verbose=False).metadata["faults"])

    yield find
    doors._tree.cache_clear()
    sys.modules.pop("lockcache_cell", None)  # which looking for its module imports


@pytest.mark.parametrize(
    "call",
    [
        "os.open(path, 0)",
        "os.unlink(path)",
        "os.rename(path, path, src_dir_fd=fd)",
        "os.rename(path, path, dst_dir_fd=fd)",
        "os.link(path, path)",
        "os.listdir(path)",
        "open(path)",
        "shutil.rmtree(path)",
        "ProcessLock(path, 1.0)",
    ],
)
def test_what_is_done_by_a_path_is_a_fault_unless_it_is_allowed(faults, call):
    name = call.partition("(")[0]
    assert faults(f"class C:\n    def do(self, path, fd):\n        {call}\n") == [
        f"lockcache_cell.module.C.do, line 3: {name} {'without layout' if name == 'ProcessLock' else 'by a path'}"
    ]


def test_what_is_done_by_a_descriptor_is_in_order_and_so_is_a_question(faults):
    text = """
        import os
        def do(path, fd, folder_fd, layout):
            os.open("x", 0, dir_fd=folder_fd)
            os.rename("x", "y", src_dir_fd=fd, dst_dir_fd=folder_fd)
            os.link(path, "x", dst_dir_fd=folder_fd)
            os.fchmod(fd, 0o660), os.utime(fd), os.listdir(folder_fd), open(fd)
            os.stat(path), os.lstat(path), os.access(path, 0), os.path.exists(path)
            ProcessLock(path, 1.0, layout=layout)
        """
    assert faults(text) == []


@pytest.mark.parametrize("text", ["_open = os.open\n", "from os import unlink\n", "from shutil import rmtree\n"])
def test_a_name_by_which_the_calls_would_not_be_found_is_a_fault(faults, text):
    [fault] = faults(text)
    assert fault.endswith("under another name")


def test_an_exception_is_for_one_function_and_named_for_nothing_a_fault_itself(faults):
    text = "def one(p):\n    os.unlink(p)\ndef other(p):\n    os.unlink(p)\n"
    assert faults(text, "lockcache_cell.module.one os.unlink", "lockcache_cell.module.gone open") == [
        "lockcache_cell.module.other, line 4: os.unlink by a path",
        "lockcache_cell.module.gone open is allowed and not there",
    ]
