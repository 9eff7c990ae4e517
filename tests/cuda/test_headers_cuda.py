# SPDX-License-Identifier: Apache-2.0
"""lockcache.headers against the real NVRTC: when its output changes, so does the fingerprint."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings, strategies as st

nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

from lockcache.errors import UncacheableError  # noqa: E402
from lockcache.headers import closure_cache, files, fingerprint  # noqa: E402
from tests.matrix_sampling import EXHAUSTIVE  # noqa: E402

pytestmark = pytest.mark.cuda

#: Of random trees, each compiled 18 times at about 40 ms.
EXAMPLES = int(os.environ.get("LOCKCACHE_HEADER_EXAMPLES", "8"))

#: What headers hold: MARK(5) shows in the output each time that it is read, in the order in which that happens. So the
#: code begins inside of a function. What is included before that may leave each mark once, more is an error.
MARK = "MARK(x)=__device__ int mark_##x;"
BODY = """
#undef MARK
#define MARK(x) *p = x;
__global__ void k(volatile int *p) {
"""


def compile_ptx(code: str, include_path: Any = (), pre_include: Any = (), **options: Any) -> bytes | None:
    """Returns what NVRTC makes of the same arguments; ``None`` for an error, which is not cached."""
    rendered = [
        "--gpu-architecture=compute_80",
        f"--std={options.get('std', 'c++17')}",
        "--relocatable-device-code=true",
    ]
    rendered += [f"--define-macro={macro}" for macro in [MARK, *options.get("define_macro", ())]]
    rendered += [f"--include-path={path}" for path in include_path]
    rendered += [f"--pre-include={path}" for path in pre_include]
    if options.get("no_source_include"):
        rendered.append("--no-source-include")
    name = options.get("name", "default_program").encode()
    error, program = nvrtc.nvrtcCreateProgram(code.encode(), name, 0, None, None)
    assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS
    (error,) = nvrtc.nvrtcCompileProgram(program, len(rendered), [option.encode() for option in rendered])
    output = None
    if error == nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, size = nvrtc.nvrtcGetPTXSize(program)
        output = b" " * size
        nvrtc.nvrtcGetPTX(program, output)
    nvrtc.nvrtcDestroyProgram(program)
    return output


# ---- random trees ----------------------------------------------------------------------------------------------------

#: Few names and few directories, so that names collide and shadow each other.
NAMES = ["h.h", "n", "x/h.h"]
PLACES = [f"{directory}{name}" for directory in ("", "sub/", "a/", "b/", "b/x/") for name in (*NAMES[:2], "n.stdh")]
PLACES += ["a/x/h.h", "x/h.h"]
OPERANDS = [*NAMES, *NAMES, "../h.h", "./n", "sub/../h.h"]
#: What is not there mostly fails to compile, and failures are not cached: so most directives ask first.
ASKED = "#if __has_include({0})\n%s\n#endif"
DIRECTIVES = [
    ASKED % "#include {0}",
    ASKED % "#include {0}",
    ASKED % "#include {0}\nMARK(100)\n#else\nMARK(101)",
    ASKED % "#include_next {0}",
    ASKED % "#include_next {0}",
    ASKED % "/* */ # /*\n*/ inc\\\nlude {0}",
    ASKED % "#define M {0}\n#include M\n#undef M",
    "#if __cplusplus < 201500\n??=include {0}\n#endif",
    "#include {0}",
    "#ifdef NEVER\n#include {0}\n#endif",
]
GUARDS = ["#pragma once", "#ifndef G_{0}\n#define G_{0}", "#if __INCLUDE_LEVEL__ < 4"]
LINKS = ["->../a/h.h", "->../h.h", "->h.h", "->n", "->nowhere"]


class Layout:
    """A random tree of headers, a source, options, and changes to be made one after the other.

    Out of a seed and not out of strategies: those prefer small and equal values, and of trees made like that NVRTC gave
    seven different outputs in two hundred compilations, and it gives sixty now.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.tree = {place: self._header() for place in PLACES if self._random.random() < 0.5}
        self.code = self._directives(3)
        self.options = {
            "include_path": self._random.choices(["a", "b", "link", "sub", "."], k=self._random.randrange(4)),
            "pre_include": self._random.choice([[], [], ["h.h"], ["n"]]),
            "name": self._random.choice(["x.cu", "sub/x.cu"]),
            "no_source_include": self._random.random() < 0.2,
        }
        self.std = self._random.choice(["c++14", "c++17"])
        self.changes = [self._change(place) for place in self._random.sample(PLACES, len(PLACES))]

    def _directives(self, count: int) -> str:
        return "\n".join(self._random.choice(DIRECTIVES).format(self._operand()) for _ in range(count))

    def _operand(self) -> str:
        return self._random.choice(['"{}"', "<{}>"]).format(self._random.choice(OPERANDS))

    def _header(self) -> str:
        number = self._random.randrange(100)
        guard = self._random.choice(GUARDS).format(number)
        end = "#endif\n" if guard.startswith("#if") else ""
        return f"{guard}\n{self._directives(self._random.randrange(3))}\nMARK({number})\n{end}"

    def _change(self, place: str) -> tuple[str, str | None]:
        return place, self._random.choice([self._header(), self._header(), None, self._random.choice(LINKS)])


def put(place: str, content: str | None) -> None:
    """Writes, links (``->x``) or removes (None) one file, and the directories on the way."""
    path = Path(place)
    # One directory is a link to another, and one file may be in the way of a directory.
    with contextlib.suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if content is None:
            return
        if content.startswith("->"):
            path.symlink_to(content[2:])
        else:
            path.write_text(content)


@contextlib.contextmanager
def directory(tree: dict[str, str]) -> Iterator[None]:
    """A new working directory with these files; afterwards it is gone, and the old one is back."""
    before, new = os.getcwd(), tempfile.mkdtemp()
    os.chdir(new)
    try:
        os.symlink("a", "link")
        os.mkdir("a")
        for place, content in tree.items():
            put(place, content)
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(new)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("racy_ns", [files._RACY_NS, 0], ids=["walked", "remembered"])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**64))
def test_another_output_is_another_fingerprint(racy_ns: int, seed: int) -> None:
    layout = Layout(seed)
    closure_cache._closures.clear()
    with pytest.MonkeyPatch.context() as patch, directory(layout.tree):
        # 0: files count as settled at once. They are not changed within one tick of the clock, NVRTC takes longer.
        patch.setattr(files, "_RACY_NS", racy_ns)
        whole, seen = f"{BODY}{layout.code}\n}}", {}
        for place, content in [("nothing", None), *layout.changes]:
            put(place, content)
            try:
                digest = fingerprint(whole, **layout.options)
            except UncacheableError:
                continue  # a macro that leads upwards: nothing is cached
            output = compile_ptx(whole, std=layout.std, **layout.options)
            if output is not None:
                note(f"{place} {content!r} -> {digest.hex()[:8]} {hash(output)}")
                assert seen.setdefault(digest, output) == output


# ---- single claims about NVRTC ---------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Writes files into the working directory, which is an empty one."""
    monkeypatch.chdir(tmp_path)

    def write(tree: dict[str, str]) -> None:
        for name, content in tree.items():
            put(name, content)

    return write


NOTICED = [
    ('#include "h.h"', {}),
    ('#include "h.h"', {"name": "sub/x.cu"}),
    ("#include <h.h>", {}),
    ("#include <n>", {}),
    ('#include "q/h.h"', {}),
    ("#include <q/include_next.h>", {}),
    ("", {"pre_include": ["h.h"]}),
    ("", {"pre_include": ["n"], "name": "sub/x.cu"}),
    ("", {"pre_include": ["h.h"], "no_source_include": True}),
    ('#include "h.h"', {"no_source_include": True}),
    ('#include "h.h/"', {}),
    ("#include HEADER", {"define_macro": ['HEADER="h.h"']}),
    ('#if __has_include("h.h")\nMARK(100)\n#endif', {}),
    ('#define HAS __has_include\n#if HAS("h.h")\nMARK(100)\n#endif', {}),
]


@pytest.mark.long
@pytest.mark.parametrize(
    "code, options",
    [pytest.param(*case, marks=EXHAUSTIVE if number % 3 else ()) for number, case in enumerate(NOTICED)],
)
def test_each_file_that_nvrtc_notices_is_noticed(
    place: Callable[[dict[str, str]], None], code: str, options: dict[str, Any]
) -> None:
    """Every place in turn gets a new file, changes and loses it."""
    given_options = {"include_path": ["a", "b"], **options}
    place({"b/h.h": "MARK(3)", "b/n": "MARK(4)", "b/q/h.h": "MARK(5)", "a/q/include_next.h": '#include_next "h.h"'})
    place({"sub/keep": "", "a/q/h.h": "MARK(6)", "q/keep": ""})
    whole, outputs = f"{BODY}{code}\n}}", {}
    for name in [f"{d}{n}" for d in ("", "sub/", "a/", "a/q/", "q/", "b/") for n in ("h.h", "n", "n.stdh", "q/h.h")]:
        original = Path(name).read_text() if Path(name).exists() else None
        for content in ("MARK(1)", None, original):
            put(name, content)
            digest = fingerprint(whole, **given_options)
            output = compile_ptx(whole, **given_options)
            assert outputs.setdefault(digest, output) == output, f"{name} {content}"
    assert len({output for output in outputs.values() if output is not None}) > 1, (
        "NVRTC noticed none of the changes, so this proves nothing"
    )


def test_the_file_macro_does_not_know_where_directories_lie(
    place: Callable[[dict[str, str]], None], tmp_path: Path
) -> None:
    """Why absolute paths need not be in the digest: ``__FILE__`` is made of what the options and the sources spell."""
    header = '__device__ const char here[] = __FILE__;\n#include "i.h"'
    place({f"{root}/a/{name}": header if name == "h.h" else "" for root in ("one", "two") for name in ("h.h", "i.h")})
    outputs = set()
    for root in ("one", "two"):
        os.chdir(tmp_path / root)
        outputs.add((fingerprint("#include <h.h>", ["a"]), compile_ptx("#include <h.h>", ["a"])))
    assert len(outputs) == 1
    assert outputs.pop()[1]


# ---- the headers of the toolkit --------------------------------------------------------------------------------------

KERNEL = """
#include <cooperative_groups.h>
#include <cuda/std/tuple>
#include <cuda/std/optional>
#include <cuda/atomic>
"""


def toolkit() -> list[str]:
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        include = os.path.join(root, "cu13", "include")
        if all(os.path.exists(f"{include}/{name}") for name in ("cooperative_groups.h", "cccl/cuda/std/tuple", "crt")):
            return [include, f"{include}/cccl"]
    pytest.skip("needs the wheels nvidia-cuda-runtime, nvidia-cuda-cccl and nvidia-cuda-crt")


@pytest.mark.long
def test_every_file_that_nvrtc_opens_for_a_real_kernel_counts() -> None:
    path = toolkit()
    with opened_below(path[0]) as opened:
        assert compile_ptx(KERNEL, path) is not None
    fingerprint(KERNEL, path)
    facts = next(reversed(closure_cache._closures._known.values())).facts
    ours = {os.fsdecode(name) for name, _ in facts.files}
    assert len(opened) > 250
    assert opened <= ours
    # Both branches of each conditional count, so there are more; not so many that other people's changes matter much.
    assert len(ours) < 1.2 * len(opened)


@contextlib.contextmanager
def opened_below(root: str) -> Iterator[set[str]]:
    """The files below ``root`` that this process, or any other, opens; complete when the block is left."""
    libc = ctypes.CDLL(None, use_errno=True)
    watcher = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert watcher >= 0, os.strerror(ctypes.get_errno())
    found: set[str] = set()
    try:
        watched = {libc.inotify_add_watch(watcher, d.encode(), IN_OPEN): d for d, _, _ in os.walk(root)}
        yield found
        with contextlib.suppress(BlockingIOError):
            while events := os.read(watcher, 1 << 20):
                found |= {os.path.join(watched[number], name) for number, name in parse_events(events)}
    finally:
        os.close(watcher)


IN_OPEN, IN_ISDIR = 0x20, 0x40000000


def parse_events(events: bytes) -> Iterator[tuple[int, str]]:
    """Number of the watch and name of the file, for each of these ``struct inotify_event``."""
    while events:
        number, mask, _, size = struct.unpack_from("iIII", events)
        name = events[16 : 16 + size].rstrip(b"\0")
        if not mask & IN_ISDIR:
            yield number, os.fsdecode(name)
        events = events[16 + size :]
