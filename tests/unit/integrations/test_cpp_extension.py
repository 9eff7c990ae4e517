# SPDX-License-Identifier: Apache-2.0
"""Torch's extensions: the build file, the key, and the lock, with real files, compilers and processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockcache.errors import UncacheableError
from lockcache.integrations.cpp_extension.baton import Baton
from lockcache.integrations.cpp_extension.keys import Torch, parts_of
from lockcache.integrations.cpp_extension.recipe import Recipe, read_recipe
from lockcache.integrations.framework_keys import UnkeyableError, key_of

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")

#: As torch 2.13 writes it.
TEXT = """ninja_required_version = 1.3
cxx = {cxx}

cflags = -DTORCH_EXTENSION_NAME=demo -I{headers} -isystem {torch}/include -isystem {python} -fPIC {flags}
post_cflags = {nothing}
cuda_dlink_post_cflags = {nothing}
ldflags = -shared -L{torch}/lib -ltorch -L{libraries} -lextra {ldflags}

rule compile
  command = $cxx -MMD -MF $out.d $cflags -c $in -o $out $post_cflags
  depfile = $out.d
  deps = gcc





rule link
  command = $cxx $in $ldflags -o $out

build main.o: compile {source}
build more.o: compile {more}





build demo.so: link main.o more.o

default demo.so
"""


class Node:
    """The folders of a machine: the extension's, torch's, the user's headers and libraries."""

    def __init__(self, path: Path) -> None:
        self.folder, self.headers, self.torch, self.libraries = (
            path / name for name in ("extension", "headers", "torch", "libraries")
        )
        self.flags, self.ldflags, self.cxx = "-O1", "", "g++"
        self.version = SimpleNamespace(__version__="2.13.0", git_version="1234", cuda=None, hip=None, debug=False)
        self.is_fixed = True
        for folder in (self.folder, self.headers / "deep", self.torch / "include/torch", self.libraries):
            folder.mkdir(parents=True)
        self.source, self.more = self.folder / "main.cpp", self.folder / "more file.cpp"
        self.write(self.source, "#include <torch/extension.h>\n#include <user.h>\nint main_part;\n")
        self.write(self.more, '#include "local.h"\n')
        self.write(self.folder / "local.h", "")
        self.write(self.headers / "user.h", '#include "deep/er.h"\n')
        self.write(self.headers / "deep/er.h", "int deeper;\n")
        self.write(self.torch / "include/torch/extension.h", "#include <torch/all.h>\n")
        self.write(self.torch / "include/torch/all.h", "")
        self.write(self.libraries / "libextra.a", "an archive")

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.write_text(text)
        os.utime(path, (1, 1))  # or it is read again, because it is young

    def recipe(self) -> Recipe:
        more = str(self.more).replace(" ", "$ ")
        found = {name: getattr(self, name) for name in ("cxx", "headers", "torch", "flags", "ldflags", "libraries")}
        python = sysconfig.get_path("include")
        return read_recipe(TEXT.format(**found, python=python, source=self.source, more=more, nothing=""))

    def parts(self) -> dict[str, str]:
        module = SimpleNamespace(_TORCH_PATH=str(self.torch), CUDA_HOME=None, _is_binary_build=lambda: self.is_fixed)
        torch: Any = SimpleNamespace(version=self.version)
        return parts_of(self.recipe(), str(self.folder), Torch(torch, module))

    def key(self) -> str:
        return key_of(self.parts())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "node")


def test_the_build_file_gives_the_sources_and_the_words_of_each_command(node: Node) -> None:
    recipe = node.recipe()
    assert recipe.target == "demo.so"
    assert recipe.sources == (str(node.source), str(node.more))
    assert [step.output for step in recipe.steps] == ["main.o", "more.o", "demo.so"]
    assert recipe.steps[1].words[-4:] == ("-c", str(node.more), "-o", "more.o")
    assert recipe.steps[2].words[:3] == ("g++", "main.o", "more.o")


@pytest.mark.parametrize("flags", ["$$(date)", "-Da=`date`", "-Da=1;date", "-I*", "~/x", '-D"a=$$b"', "'open"])
def test_what_a_shell_changes_has_no_key(flags: str, node: Node) -> None:
    node.flags = flags
    with pytest.raises(UnkeyableError):
        node.recipe()


def test_what_is_quoted_is_passed_on_as_it_is(node: Node) -> None:
    node.ldflags = '-Wl,-rpath,\'$$ORIGIN/lib\' -DA=\\"b\\" "-DC=(d)"'
    assert node.recipe().steps[2].words[-5:-2] == ("-Wl,-rpath,$ORIGIN/lib", '-DA="b"', "-DC=(d)")


@pytest.mark.parametrize("text", ["", "default x.so\n", TEXT.replace("rule link", "rule sycl_link")])
def test_another_text_is_not_taken_for_a_build_of_one_library(text: str) -> None:
    with pytest.raises(UnkeyableError):
        read_recipe(text.replace("{nothing}", ""))


def test_the_same_extension_has_the_same_key_in_other_folders(node: Node, tmp_path: Path) -> None:
    another = Node(tmp_path / "somewhere" / "else")
    before = node.key()
    assert another.key() == before
    for name in ("main.o", "main.o.d", "demo.so"):
        node.write(node.folder / name, "of an earlier build")
    assert node.key() == before


CHANGES: dict[str, Callable[[Node], object]] = {
    "source": lambda node: node.write(node.source, "int other;\n"),
    "another source": lambda node: node.write(node.more, "int other;\n"),
    "header next to a source": lambda node: node.write(node.folder / "local.h", "int local;\n"),
    "header": lambda node: node.write(node.headers / "user.h", '#include "deep/er.h"\n\n'),
    "header of a header": lambda node: node.write(node.headers / "deep/er.h", "int deepest;\n"),
    "header that is gone": lambda node: (node.headers / "deep/er.h").unlink(),
    "static library": lambda node: node.write(node.libraries / "libextra.a", "another one"),
    "shared instead of static": lambda node: shutil.copy(sys.executable, node.libraries / "libextra.so"),
    "flag": lambda node: setattr(node, "flags", "-O2"),
    "flag of the linker": lambda node: setattr(node, "ldflags", "-s"),
    "version of torch": lambda node: setattr(node.version, "git_version", "5678"),
    "another compiler": lambda node: setattr(node, "cxx", "gcc"),
    "header that shadows one of torch's": lambda node: (
        (node.headers / "torch").mkdir(),
        node.write(node.headers / "torch/all.h", "int shadow;\n"),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_can_change_the_library_changes_the_key(change: str, node: Node) -> None:
    before = node.key()
    CHANGES[change](node)
    assert node.key() != before


def test_a_header_of_a_torch_that_was_built_here_counts(node: Node) -> None:
    def changed() -> bool:
        before = node.key()
        with (node.torch / "include/torch/all.h").open("a") as file:
            file.write("int more;\n")
        return node.key() != before

    assert not changed(), "the version stands for it"
    node.is_fixed = False
    assert changed()


def test_the_processor_counts_where_a_flag_asks_for_it(node: Node) -> None:
    assert "processor" not in node.parts()
    node.flags = "-march=native"
    assert "processor" in node.parts()


@pytest.mark.parametrize("flags, source", [("-g", ""), ("-O1", "auto path = __FILE__;\n")])
def test_a_path_that_can_be_in_the_library_is_in_the_key(flags: str, source: str, node: Node, tmp_path: Path) -> None:
    another = Node(tmp_path / "other")
    for each in (node, another):
        each.flags = flags
        each.write(each.source, source)
    assert node.key() != another.key()


@pytest.mark.parametrize(
    "flags",
    ["-Irelative", "-include local.h", "--save-temps", "--coverage", "-fprofile-use=profile", "-DHEADER='\"{}\"'"],
)
def test_what_leads_from_the_folder_or_leaves_more_than_the_library_has_no_key(flags: str, node: Node) -> None:
    node.flags = flags.format(node.headers / "user.h")
    with pytest.raises(UnkeyableError):
        node.key()


def test_a_source_that_asks_for_the_time_has_no_key(node: Node) -> None:
    node.write(node.headers / "user.h", "const char* at = __TIME__;\n")
    with pytest.raises(UncacheableError):
        node.key()


def _holder(path: Path) -> subprocess.Popen[str]:
    """Returns a process that has taken torch's lock, as torch takes it."""
    program = "import os, sys; os.open(sys.argv[1], os.O_CREAT | os.O_EXCL); print(flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", program, path], stdin=-1, stdout=-1, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


class Waiter:
    """A thread that holds a baton as soon as it can."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.baton, self._has_looked = Baton(str(path)), threading.Event()
        pause = time.sleep

        def note(seconds: float) -> None:
            self._has_looked.set()
            pause(seconds)

        monkeypatch.setattr(time, "sleep", note)
        self._thread = threading.Thread(target=self.baton.hold)
        self._thread.start()

    def assert_is_waiting(self) -> None:
        assert self._has_looked.wait(30)
        assert self._thread.is_alive()

    def assert_comes(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()


def test_the_lock_of_a_live_holder_is_waited_for_and_that_of_a_dead_one_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    with _holder(path) as process:
        waiter = Waiter(path, monkeypatch)
        waiter.assert_is_waiting()
        process.kill()
        waiter.assert_comes()
    assert path.exists(), "others wait for it"
    waiter.baton.release()
    assert not path.exists()


def test_while_the_ninja_of_a_killed_builder_works_on_its_folder_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ninja = shutil.which("ninja") or pytest.skip("needs ninja")
    path = tmp_path / "lock"
    path.write_bytes(b"")
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "build.ninja").write_text("rule wait\n  command = cat gate > /dev/null\nbuild out: wait\n")
    with subprocess.Popen([ninja], cwd=tmp_path, stdout=-1) as process:
        gate = os.open(tmp_path / "gate", os.O_WRONLY)  # once the command reads it
        waiter = Waiter(path, monkeypatch)
        waiter.assert_is_waiting()
        os.close(gate)
        process.communicate()
    waiter.assert_comes()
    waiter.baton.release()
