# SPDX-License-Identifier: Apache-2.0
"""Keys of C++ builds, with real files; what they are made for, Inductor's own commands, is in tests/frameworks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.errors import UncacheableError
from lockcache.headers import ClosureStore, closure_cache, files
from lockcache.integrations.framework_keys import cpp
from lockcache.integrations.framework_keys.cpp import UnkeyableError, key_of, parts_of

SOURCE = '#include <shared.h>\n#include "{}/private.h"\nint kernel() {{ return 1; }}\n'


class Node:
    """A machine's directories: Inductor's, which is private, and the headers and the compiler that all nodes have."""

    def __init__(self, path: Path) -> None:
        self.private, self.headers, self.other = path / "inductor", path / "include", path / "other"
        self.program, self.texts, self.flags = path / "bin" / "c++", dict[str, bytes](), "-O3 -march=native"
        self.said = "c++ version 12"
        self.store: ClosureStore | None = None
        for folder in (self.private, self.headers, self.other, self.program.parent):
            folder.mkdir(parents=True)
        self.program.write_bytes(b"a compiler")
        self.program.chmod(0o755)
        self.write(self.headers / "shared.h", "#include <inner.h>\n")
        self.write(self.headers / "inner.h", "int inner;\n")
        self.write(self.private / "private.h", "int own;\n")
        self.write(self.private / "kernel.cpp", SOURCE.format(self.private))
        self.write(self.private / "half.o", "object")
        self.write(self.other / "profile", "profile")

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.write_text(text)
        os.utime(path, (1, 1))  # or it is read again, because it is young

    def key(self, sources: str = "{0}/kernel.cpp {0}/half.o") -> str:
        target = f"{self.private}/kernel.so"
        command = (
            f"{self.program} {sources.format(self.private)} {self.flags} -I{self.other} -I{self.headers} "
            f"-L{self.other} -Wl,-T,{self.other}/profile -o {target}"
        )
        roots = {str(self.private): "$INDUCTOR", str(self.other): "$TORCH"}
        return key_of(parts_of(command, target, roots, self.texts, lambda _: self.said, self.store))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "node")


def test_the_same_build_has_the_same_key_in_other_directories(node: Node, tmp_path: Path) -> None:
    another = Node(tmp_path / "somewhere" / "else")
    before = node.key()
    assert another.key() == before
    node.write(node.private / "kernel.so", "the target of an earlier build")
    assert node.key() == before


CHANGES: dict[str, Callable[[Node], object]] = {
    "source": lambda node: node.write(node.private / "kernel.cpp", SOURCE.format(node.private).replace("1", "2")),
    "object": lambda node: node.write(node.private / "half.o", "another"),
    "header": lambda node: node.write(node.headers / "shared.h", "#include <inner.h>\nint more;\n"),
    "header of a header": lambda node: node.write(node.headers / "inner.h", "int inner = 2;\n"),
    "header in Inductor's directory": lambda node: node.write(node.private / "private.h", "int own = 2;\n"),
    "header that shadows another": lambda node: node.write(node.other / "inner.h", "int shadow;\n"),
    "header that is gone": lambda node: (node.headers / "inner.h").unlink(),
    "flag": lambda node: setattr(node, "flags", "-O2 -march=native"),
    "file that an option names": lambda node: node.write(node.other / "profile", "another"),
    "version of the compiler": lambda node: setattr(node, "said", "c++ version 13"),
    "compiler of the same version": lambda node: node.program.write_bytes(b"its brother"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_can_change_the_output_changes_the_key(change: str, node: Node) -> None:
    before = node.key()
    CHANGES[change](node)
    assert node.key() != before


@pytest.fixture
def saving(node: Node, cache_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A node that saves what headers include, of a source that names no file in quotes, which is private."""
    monkeypatch.setattr(files, "_RACY_NS", 0)  # or no file is old enough to vouch for itself
    node.write(node.private / "kernel.cpp", "#include <shared.h>\nint kernel() { return 1; }\n")
    with FileStreamProgramCache(cache_path) as cache:
        node.store = cache._closures
        yield node


def _forget() -> None:
    """Forget what headers include, as another process, which knows nothing of it."""
    closure_cache._closures.clear()
    files._contents.clear()


def test_another_node_with_other_private_directories_reads_no_header(
    saving: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saving.key()
    saving.private = saving.private.rename(tmp_path / "another")
    _forget()
    monkeypatch.setattr(closure_cache, "walk", lambda _: pytest.fail("reads headers"))
    assert saving.key() == before


@pytest.mark.parametrize("change", [change for change in CHANGES if "Inductor" not in change])
def test_whatever_can_change_the_output_changes_the_key_where_closures_are_saved(change: str, saving: Node) -> None:
    before = saving.key()
    CHANGES[change](saving)
    _forget()
    assert saving.key() != before


def test_a_header_that_the_command_includes_counts(node: Node) -> None:
    path = f"{node.private}/precompiled.h"
    node.texts[path] = b"#include <first.h>\n"
    sources = f"{{0}}/kernel.cpp -include {path}"
    keys = {node.key(), node.key(sources)}
    node.texts[path] = b"#include <second.h>\n"
    keys.add(node.key(sources))
    node.write(node.headers / "second.h", "int second;\n")
    keys.add(node.key(sources))
    assert len(keys) == 4


@pytest.mark.parametrize("name", ["CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH"])
def test_a_variable_that_the_compiler_reads_changes_the_key(
    name: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = node.key()
    monkeypatch.setenv(name, "/opt/include")
    assert node.key() != before


def test_a_header_that_a_variable_leads_to_counts(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (node.headers / "inner.h").unlink()
    monkeypatch.setenv("CPATH", str(tmp_path))
    before = node.key()
    node.write(tmp_path / "inner.h", "int found;\n")
    assert node.key() != before


def test_another_processor_has_another_key(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    before = node.key()
    monkeypatch.setattr(cpp, "describe_processor", lambda: "flags : avx2")
    assert node.key() != before


def test_what_the_processor_is_has_no_clock_and_no_number_of_a_core() -> None:
    if not os.path.exists("/proc/cpuinfo"):
        pytest.skip("needs Linux")
    said = cpp.describe_processor().lower()
    assert said
    assert "mhz" not in said
    assert "core id" not in said


def test_what_cannot_be_described_is_not_shared(node: Node) -> None:
    node.said = ""
    node.program.write_bytes(b"silent")
    with pytest.raises(UnkeyableError):
        node.key()
    shutil.rmtree(node.program.parent)
    with pytest.raises(UnkeyableError):
        node.key()


@pytest.mark.parametrize("name, is_run", [("g++", False), ("x86_64-linux-gnu-gcc-12", False), ("clang++", True)])
def test_a_gcc_that_the_linker_gave_a_number_is_not_run(name: str, is_run: bool, node: Node) -> None:
    real = shutil.which("g++") or pytest.skip("needs gcc")
    content = Path(real).read_bytes()
    if b"\3\0\0\0GNU\0" not in content[: cpp._HEAD_BYTES]:
        pytest.skip("needs a gcc with a build ID")
    node.program = node.program.with_name(name)
    node.program.write_bytes(content)
    node.program.chmod(0o755)
    before = node.key()
    node.said = "another version"
    assert (node.key() != before) == is_run
    node.program.write_bytes(content.replace(b"\3\0\0\0GNU\0", b"\3\0\0\0GNU\0" + b"1" * 20))
    assert node.key() != before


def test_a_source_that_asks_for_the_time_is_not_shared(node: Node) -> None:
    node.write(node.headers / "inner.h", "const char* at = __TIME__;\n")
    with pytest.raises(UncacheableError):
        node.key()


def test_a_file_that_is_too_large_is_not_shared(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp, "_MOST_BYTES", 5)
    with pytest.raises(UnkeyableError):
        node.key()


@pytest.mark.parametrize("option", ["-include", "-imacros"])
def test_a_file_that_an_option_includes_is_read_or_the_build_has_no_key(node: Node, option: str) -> None:
    node.flags = f"{option} {node.headers}/inner.h"
    before = node.key()
    node.write(node.headers / "inner.h", "int outer;\n")
    assert node.key() != before
    node.write(node.headers / "inner", '#include "inner.h"\n')
    for name in ("inner.h", f"{node.headers}/inner"):  # searched for; not known to be a source
        node.flags = f"{option} {name}"
        with pytest.raises(UnkeyableError):
            node.key()
