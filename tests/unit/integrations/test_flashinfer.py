# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's libraries: the build file that FlashInfer writes, and files that were changed since the installation."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache.integrations.cpp_extension.keys import parts_of
from lockcache.integrations.cpp_extension.recipe import Recipe, read_recipe
from lockcache.integrations.flashinfer.adapting import relative
from lockcache.integrations.flashinfer.installed import Installed
from lockcache.integrations.flashinfer.keys import FlashInfer
from lockcache.integrations.framework_keys import UnkeyableError, key_of

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")

#: As FlashInfer 0.7.2 writes it.
TEXT = """ninja_required_version = 1.3
name = demo
cuda_home = {cuda}
cxx = g++
nvcc = $cuda_home/bin/nvcc
cxx_launcher = {launcher}

common_cflags = -DPy_LIMITED_API=0x03090000 $
    -I{site}/flashinfer/data/cccl/cub $
    -isystem $cuda_home/include $
    -isystem {site}/flashinfer/data/include
cflags = $common_cflags $
    -fPIC $
    -O3 {flags}
post_cflags =
ldflags = -shared $
    -L$cuda_home/lib64 $
    -lcudart

rule compile
  command = $cxx_launcher $cxx -MMD -MF $out.d $cflags -c $in -o $out $post_cflags
  depfile = $out.d
  deps = gcc

rule link
  command = $cxx $in $ldflags -o $out

build {folder}/csrc_main.o: compile {source}
{own}
build {folder}/demo.so: link {folder}/csrc_main.o
default {folder}/demo.so
"""


class Node:
    """The folders of a machine, with FlashInfer installed from a wheel."""

    def __init__(self, path: Path) -> None:
        self.site, self.workspace, self.cuda = path / "site", path / "workspace", path / "cuda"
        self.data, self.folder = self.site / "flashinfer/data", self.workspace / "cached_ops/demo"
        self.header, self.source = self.data / "include/flashinfer/page.cuh", self.data / "csrc/main.cc"
        self.flags = self.own = self.launcher = ""
        for folder in (self.folder, self.header.parent, self.source.parent, self.data / "cccl/cub", self.cuda):
            folder.mkdir(parents=True)
        self.header.write_text("int page;\n")
        self.source.write_text("#include <flashinfer/page.cuh>\n")
        self.record = self.site / "flashinfer_python-0.7.2.dist-info/RECORD"
        self.install()

    def install(self) -> None:
        """Write RECORD as an installer does: last, with other files, whose paths may be private."""
        lines = [f"../../../bin/flashinfer,sha256={self.site},9", "flashinfer/__init__.py,sha256=abc,3"]
        for path in sorted(path for path in self.data.rglob("*") if path.is_file()):
            found = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")
            lines.append(f"{path.relative_to(self.site)},sha256={found},{path.stat().st_size}")
            os.utime(path, (1, 1))
        lines += ["flashinfer/decode.py,sha256=def,3", f"{self.record.relative_to(self.site)},,"]
        self.record.parent.mkdir(exist_ok=True)
        self.record.write_text("\n".join(lines) + "\n")
        os.utime(self.record, (2, 2))

    def installed(self) -> Installed:
        return Installed("flashinfer-python", str(self.data), [self.data / "include", self.data / "csrc"])

    def text(self) -> str:
        found = {name: getattr(self, name) for name in ("cuda", "site", "folder", "source", "flags", "own", "launcher")}
        return relative(TEXT.format(**found), str(self.folder))

    def recipe(self) -> Recipe:
        return read_recipe(self.text())

    def parts(self) -> dict[str, str]:
        framework = FlashInfer([self.installed()], str(self.workspace), self.text())
        return parts_of(self.recipe(), str(self.folder), framework)

    def key(self) -> str:
        return key_of(self.parts())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "node")


def test_the_build_file_gives_commands_that_build_in_any_folder_and_list_all_headers(node: Node) -> None:
    recipe = node.recipe()
    assert recipe.target == "demo.so"
    assert recipe.sources == (str(node.source),)
    [compiling, linking] = recipe.steps
    assert compiling.words[:4] == ("g++", "-MD", "-MF", "csrc_main.o.d")
    assert compiling.words[-4:] == ("-c", str(node.source), "-o", "csrc_main.o")
    assert linking.words == ("g++", "csrc_main.o", "-shared", f"-L{node.cuda}/lib64", "-lcudart", "-o", "demo.so")
    assert str(node.folder) not in node.text()
    assert "deps = gcc" not in node.text()


def test_a_variable_of_one_build_takes_the_place_of_the_files(node: Node) -> None:
    node.own = "  cflags = $common_cflags $\n    -O1\n"
    assert node.recipe().steps[0].words[-5:] == ("-O1", "-c", str(node.source), "-o", "csrc_main.o")


def test_in_another_environment_and_home_the_key_is_the_same(node: Node, tmp_path: Path) -> None:
    assert Node(tmp_path / "somewhere" / "else").key() == node.key()


CHANGES: dict[str, Callable[[Node], object]] = {
    "source": lambda node: node.source.write_text("int other;\n"),
    "flag": lambda node: setattr(node, "flags", "-O1"),
    "flag of one build": lambda node: setattr(node, "own", "  cflags = -O1\n"),
    "another wheel": lambda node: (node.header.write_text("int other;\n"), node.install()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_can_change_the_library_changes_the_key(change: str, node: Node) -> None:
    before = node.key()
    CHANGES[change](node)
    assert node.key() != before


def test_without_a_record_nothing_has_a_key(node: Node) -> None:
    node.record.write_text(f"flashinfer/__init__.py,sha256=abc,3\n{node.record.relative_to(node.site)},,\n")
    with pytest.raises(UnkeyableError, match="is not installed from a wheel"):
        node.key()


def test_a_launcher_of_another_compiler_and_a_rule_for_cubins_have_no_key(node: Node) -> None:
    node.own = "build x.o: embed_cubin csrc_main.o | /a.cubin\n"
    with pytest.raises(UnkeyableError, match="unknown rule"):
        node.key()
    node.own, node.launcher = "", "env"
    with pytest.raises(UnkeyableError, match="starts another compiler"):
        node.key()


def test_a_file_that_was_changed_is_found(node: Node) -> None:
    names = ["include/flashinfer/page.cuh", "csrc/main.cc"]
    installed = node.installed()
    installed.check(trusts_times=False)
    assert installed.is_unchanged(names)
    node.header.touch()
    installed.check(trusts_times=True)
    assert installed.is_unchanged(names), "it is newer, and has the same bytes"

    node.header.write_text("int else;\n")
    assert not installed.is_unchanged(names)
    assert installed.is_unchanged(names[1:])
    with pytest.raises(UnkeyableError, match=r"changed after it was installed: include/flashinfer/page\.cuh"):
        installed.check(trusts_times=True)
    node.header.unlink()
    assert not installed.is_unchanged(names)


def test_a_file_that_was_added_is_found(node: Node) -> None:
    (node.header.parent / "more.cuh").write_text("int more;\n")
    with pytest.raises(UnkeyableError, match=r"more\.cuh"):
        node.installed().check(trusts_times=True)


def test_an_entry_lists_the_headers_that_the_compilers_read(node: Node, tmp_path: Path) -> None:
    framework = FlashInfer([node.installed()], str(node.workspace), node.text())
    with pytest.raises(UnkeyableError):
        framework.used_in(str(tmp_path))
    headers = [str(node.header.parent / ".." / "flashinfer" / "page.cuh"), "/usr/include/a\\ b.h", str(node.source)]
    (tmp_path / "csrc_main.o.d").write_text(f"csrc_main.o: \\\n {' '.join(headers[:2])} \\\n {headers[2]}\n")
    used = framework.used_in(str(tmp_path))
    assert used == b"0 csrc/main.cc\n0 include/flashinfer/page.cuh"
    assert framework.has_used(used)
    node.header.write_text("int else;\n")
    assert not framework.has_used(used)
    while node.record.stat().st_ctime_ns <= node.header.stat().st_ctime_ns:
        node.record.touch()
    with pytest.raises(UnkeyableError, match=r"changed after it was installed: include/flashinfer/page\.cuh"):
        framework.used_in(str(tmp_path))  # whatever the times say
    for damaged in (b"", b"7 include", b"x"):
        with pytest.raises(UnkeyableError):
            framework.has_used(damaged)


def _copy_over(node: Node, other: Path) -> None:
    shutil.copy2(other, node.header)


def _link_to(node: Node, other: Path) -> None:
    node.header.unlink()
    node.header.symlink_to(other)


@pytest.mark.parametrize("change", [_copy_over, _link_to])
def test_a_header_that_is_older_than_the_installation_and_came_after_it_is_a_change(
    change: Callable[[Node, Path], None], node: Node, tmp_path: Path
) -> None:
    patched = tmp_path / "patched.cuh"
    patched.write_text("int patched;\n")
    os.utime(patched, (1, 1))
    change(node, patched)
    assert not node.installed().is_unchanged(["include/flashinfer/page.cuh"])
    with pytest.raises(UnkeyableError, match="was changed after it was installed"):
        node.installed().check(trusts_times=True)
