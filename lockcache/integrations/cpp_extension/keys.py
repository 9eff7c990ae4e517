# SPDX-License-Identifier: Apache-2.0
"""Keys of libraries that ninja builds: everything that can change the library, and no private path.

Keeps invariant 1 (a hit is whole, and is what was stored under that key). Torch and FlashInfer have no key: a name is
the folder, and ninja compares times. A key has the commands of the build file, without the paths of folders; the bytes
of sources, objects and static libraries; the headers that the sources can reach in folders of the user's; the
compilers, the framework, Python and the C library, which stand for their own headers; the processor, if a flag says
``native``; and variables that compilers read. The paths of sources are in it only where they can be in the output: with
debug information, and where a text asks for its own path.

Not in it: headers of the framework, Python and CUDA, one by one. Torch passes their folders as those of the system, so
that ninja does not look at them either. Where another folder may shadow one of them, or torch was built here, all are
read.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from lockcache.headers import PathUse
from lockcache.integrations.cpp_extension.recipe import Recipe, Step
from lockcache.integrations.framework_keys import (
    Command,
    UnkeyableError,
    describe_binary,
    describe_compiler,
    describe_environment,
    describe_processor,
    describe_system,
    digest,
    read_file,
)

__all__ = ["Framework", "Torch", "describe_toolkit", "parts_of"]

_ASK_SECONDS: Final = 60.0
# In front of the compiler; what they find is what it makes.
_LAUNCHERS: Final = ("ccache", "sccache")
_OF_NVCC: Final = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "CUDAHOSTCXX")
# Files of a toolkit that say which one its headers are of: it may be made of several packages.
_OF_CUDA: Final = (
    *("version.json", "include/cuda.h", "include/cuda_runtime_api.h"),
    *("include/cccl/cuda/std/__cccl/version.h", "include/cuda/std/__cccl/version.h"),
    *("include/cublas_api.h", "include/curand.h", "include/cudnn_version.h"),
)
# Those that nvcc starts, which may be of other packages than nvcc.
_PROGRAMS_OF_CUDA: Final = ("nvvm/bin/cicc", "bin/ptxas", "bin/cudafe++")
_HAS_DEBUG: Final = re.compile(r"(?:^|[\s,=])(?:-g(?!encode|0\b)|-G\b|-lineinfo|--generate-line-info|--device-debug)")
#: With these a compiler leaves more than the library, or reads what an earlier run left.
_LEAVES_MORE: Final = re.compile(
    r"(?:^|[\s,=])(?:--?save-temps|--?keep\b|-fprofile|--coverage|-ftest-coverage|-gsplit-dwarf|-fdump|-dumpdir"
    r"|-ftime-trace|--?time\b|-fplugin|-specs)"
)
_FOLDER_FLAGS: Final = ("-I", "-isystem", "-iquote", "-idirafter", "-L", "-B")
_SYSTEM_LIBRARIES: Final = ("/usr/local/lib", "/lib64", "/usr/lib64", "/lib", "/usr/lib")


class Framework(Protocol):
    """A framework that has libraries built, whose parts stand for its headers and libraries."""

    #: The part of the key.
    name: str

    def roots(self) -> dict[str, str]:
        """Returns the private folders of this machine, with a name for each."""

    def known(self) -> list[str]:
        """Returns the folders of headers that :meth:`describe` stands for."""

    def describe(self, *, has_cuda: bool) -> str:
        """Returns what it is, and the toolkit, if that is used. Raises :class:`UnkeyableError`."""


class Torch:
    """The torch of this process."""

    name = "torch"

    def __init__(self, torch: Any, module: Any) -> None:
        self.root: str = module._TORCH_PATH
        self._module = module
        version = torch.version
        self._parts = repr([version.__version__, version.git_version, version.cuda, version.hip, version.debug])
        # One that was built here may have been changed since, without another version.
        self._is_fixed = bool(module._is_binary_build())

    @property
    def cuda(self) -> str:
        """The folder of the CUDA toolkit; empty without one."""
        return self._module.CUDA_HOME or ""

    def roots(self) -> dict[str, str]:
        """Returns the private folders of this machine, with a name for each."""
        return {path: name for path, name in ((self.root, "$TORCH"), (self.cuda, "$CUDA")) if path}

    def known(self) -> list[str]:
        """Returns the folders of headers that :meth:`describe` stands for."""
        include = f"{self.root}/include"
        found = [sysconfig.get_path("include")]
        if self._is_fixed:
            found += [include, f"{include}/torch/csrc/api/include"]
        return found + ([f"{self.cuda}/include"] if self.cuda else [])

    def describe(self, *, has_cuda: bool) -> str:
        """Returns what torch is, and the toolkit, if that is used. Raises :class:`UnkeyableError`."""
        return repr([self._parts, *(describe_toolkit(self.cuda) if has_cuda else [])])


def describe_toolkit(path: str) -> list[str]:
    """Returns which CUDA toolkit is in a folder. Raises :class:`UnkeyableError` or :class:`OSError`."""
    texts = [f"{path}/{name}" for name in _OF_CUDA]
    programs = [f"{path}/{name}" for name in _PROGRAMS_OF_CUDA]
    return [
        *(digest(read_file(text)) for text in texts if os.path.isfile(text)),
        *(describe_binary(program) for program in programs if os.path.isfile(program)),
    ]


def parts_of(recipe: Recipe, folder: str, framework: Framework) -> dict[str, str]:
    """Returns the parts of the key of one library, which is built in ``folder``.

    Raises :class:`UnkeyableError`, :class:`OSError`, and what :func:`lockcache.headers.fingerprint` does.
    """
    is_native = any("native" in word for step in recipe.steps for word in step.words)
    made = {name for step in recipe.steps for name in (step.output, f"{step.output}.d")}
    parts = {
        "system": describe_system(),
        framework.name: framework.describe(has_cuda=any(step.is_cuda for step in recipe.steps)),
        "compiler": repr(sorted({_describe_program(step) for step in recipe.steps})),
        "environment": describe_environment(_OF_NVCC),
        **({"processor": describe_processor()} if is_native else {}),
    }
    paths: list[object] = []
    for step in recipe.steps:
        words = _plain_words(step, made, folder)
        libraries = _libraries(words, tuple(f"{path}/" for path in framework.roots()))
        # Where libraries are searched for is not in the output; those that were found are, if they are static.
        command = Command(_without_places(words), step.output, framework.roots(), {}, framework.known())
        parts[step.output] = repr((command.read(), libraries))
        if command.paths & (PathUse.USED | PathUse.PIECES) or any(map(_HAS_DEBUG.search, words)):
            paths.append((step.inputs, words))
    return {**parts, **({"paths": repr((folder, paths))} if paths else {})}


def _describe_program(step: Step) -> str:
    program = _program(step.words)
    after = step.words[step.words.index(program) + 1]
    if not after.startswith("-") and shutil.which(after):
        raise UnkeyableError(f"{program:.80} starts another compiler")
    found = describe_compiler(program, _ask)
    if step.is_cuda:  # compiles for the CPU too, by a compiler that it searches for, unless it is named
        found += describe_compiler(_host_compiler(step.words), _ask)
    return found


def _program(words: Sequence[str]) -> str:
    names = [word for word in words if os.path.basename(word) not in _LAUNCHERS]
    return names[0]


def _host_compiler(words: Sequence[str]) -> str:
    for flag in ("-ccbin", "--compiler-bindir"):
        if flag in words[:-1]:
            return words[words.index(flag) + 1]
    return "g++"


def _ask(program: str) -> str:
    """Returns what a compiler says about itself; nothing if it says nothing."""
    command, environment = [program, "--version"], {**os.environ, "LC_ALL": "C"}
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, timeout=_ASK_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ended.stdout.decode(errors="replace")


def _plain_words(step: Step, made: set[str], folder: str) -> list[str]:
    """Returns the words after the compiler. Raises :class:`UnkeyableError` for those that no key describes.

    ninja runs in the extension's folder, from which relative paths lead, and lockcache has it run in another one.
    """
    words = [*step.words[step.words.index(_program(step.words)) + 1 :]]
    for at, word in enumerate(words):
        if _LEAVES_MORE.search(word):
            raise UnkeyableError(f"{word:.80} leaves or reads more than the library")
        flag = next((flag for flag in _FOLDER_FLAGS if word.startswith(flag)), "")
        named = word.removeprefix(flag) or (words[at + 1] if at + 1 < len(words) else "")
        if flag and not os.path.isabs(named):
            raise UnkeyableError(f"{flag} {named:.80} is a relative path")
        for piece in _pieces(word):
            if piece not in made and not os.path.isabs(piece) and os.path.lexists(os.path.join(folder, piece)):
                raise UnkeyableError(f"{piece:.80} is a relative path")
            if word.startswith("-D") and os.path.isabs(piece) and os.path.isfile(piece):
                raise UnkeyableError(f"{word:.80} names a file that a source may include")
    return words


def _pieces(word: str) -> Iterator[str]:
    """Yields the parts of a word that may be paths."""
    return filter(None, (piece.strip("\"'<> ") for piece in re.split("[=,@:]", word)))


def _without_places(words: Sequence[str]) -> list[str]:
    found, is_place = [], False
    for word in words:
        if not (is_place or word.startswith("-L")):
            found.append(word)
        is_place = word == "-L"
    return found


def _libraries(words: Sequence[str], known: tuple[str, ...]) -> list[str]:
    """Returns what the libraries are that a command copies from, with static ones and scripts by their bytes.

    ``known``: folders whose libraries another part of the key stands for. Of a shared library the output has the name
    alone; the loader searches for it again.
    """
    places, names = [], []
    for at, word in enumerate(words):
        follows = words[at + 1] if at + 1 < len(words) else ""
        if word.startswith("-L"):
            places.append(word.removeprefix("-L") or follows)
        elif word.startswith("-l"):
            names.append(word.removeprefix("-l") or follows)
    machine = f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}"
    variable = filter(None, os.environ.get("LIBRARY_PATH", "").split(os.pathsep))
    places = [*places, *variable, machine, *_SYSTEM_LIBRARIES]
    wants_static = any("static" in word for word in words)
    return [_library(name, places, known, wants_static=wants_static) for name in names]


def _library(name: str, places: Sequence[str], known: tuple[str, ...], *, wants_static: bool) -> str:
    files = [name[1:]] if name.startswith(":") else [f"lib{name}.so", f"lib{name}.a"]
    if wants_static:
        files.reverse()
    for place in places:
        for file in files:
            path = os.path.join(place, file)
            if os.path.isfile(path):
                is_by_name = path.startswith(known) or _has_dynamic_type(path)
                return name if is_by_name else f"{name} {digest(read_file(path))}"
    return name


def _has_dynamic_type(path: str) -> bool:
    with open(path, "rb") as file:
        head = file.read(18)
    # An ELF file of type ET_DYN, in either byte order.
    return head[:4] == b"\x7fELF" and head[16:18] in (b"\x03\x00", b"\x00\x03")
