# SPDX-License-Identifier: Apache-2.0
"""Keys of what a C++ compiler builds: everything that can change the output, and no private path.

Keeps invariant 1 (a hit is whole, and is what was stored under that key) where a wrong hit is machine code for another
processor or of another source. Inductor's own name of a build has no processor in it, though it passes
``-march=native``, and torch's extensions have no key at all: their folders are for one machine.

A key has the command, in which the paths of private folders are names; the bytes of each file
in the command, sources and objects alike; all headers that a source can reach in the directories of the command
(:mod:`lockcache.headers`), unless those are known by a version; the compiler's program and what it says about itself,
which stand for its own headers and the C library's; the version of the C library; the processor; and the variables that
compilers read. Not in it: the paths of headers, which only messages of assertions name, and the number of a stepping.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from lockcache.headers import ClosureStore, PathUse, examine

__all__ = [
    "Command",
    "UnkeyableError",
    "describe_binary",
    "describe_compiler",
    "describe_environment",
    "describe_machine",
    "describe_processor",
    "describe_system",
    "digest",
    "key_of",
    "parts_of",
    "read_file",
]

# A larger source, object or result is left to the framework.
_MOST_BYTES: Final = 1 << 28

_VARIABLES: Final = (
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"),
    *("LD_RUN_PATH", "SOURCE_DATE_EPOCH", "CCC_OVERRIDE_OPTIONS", "CCACHE_PREFIX", "CL"),
)
_INCLUDE_VARIABLES: Final = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")

# Of x86, ARM, POWER, s390 and RISC-V: what `native` is made of.
_OF_PROCESSORS: Final = {
    *("vendor_id", "cpu family", "model", "flags"),
    *("cpu implementer", "cpu architecture", "cpu variant", "cpu part", "features"),
    *("cpu", "machine", "isa", "uarch"),
}
_INCLUDE_FLAGS: Final = ("-I", "-isystem", "-iquote", "-idirafter")
# Each is followed by a file that the compiler searches for if its path is not absolute.
_INCLUDED: Final = ("-include", "-imacros")
_SOURCES: Final = (".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".cu", ".cuh", ".S")
_IS_GCC: Final = re.compile(r"(?:^|-)(?:g\+\+|gcc)(?:-[\d.]+)?\Z")
# A note of GNU's, of type 3 and 20 bytes: the digest of the whole program, near its beginning.
_BUILD_ID: Final = b"\4\0\0\0\24\0\0\0\3\0\0\0GNU\0"
_HEAD_BYTES: Final = 1 << 14
_IS_INCLUDED_BY_PATH: Final = re.compile(rb'^(\s*#\s*include\s*")(/[^"\n]+/)([^"/\n]+")', re.MULTILINE)


class UnkeyableError(Exception):
    """This build cannot be shared: something that its output depends on cannot be read."""


def parts_of(
    command: str,
    target: str,
    roots: Mapping[str, str],
    texts: Mapping[str, bytes],
    ask: Callable[[str], str],
    store: ClosureStore | None = None,
) -> dict[str, str]:
    """Returns the parts of the key of one build.

    ``roots``: folders whose paths are private, with a name for each. ``texts``: what files in the command contain that
    need not exist. ``ask(program)``: what the compiler says about itself. ``store``: where processes save for each
    other what headers include.

    Raises :class:`UnkeyableError`, :class:`OSError`, and what :func:`lockcache.headers.fingerprint` does.
    """
    program, *tokens = shlex.split(command)
    return {
        **describe_machine(),
        "compiler": describe_compiler(program, ask),
        "environment": describe_environment(),
        "command": repr(Command(tokens, target, roots, texts, store=store).read()),
    }


def describe_machine() -> dict[str, str]:
    """Returns the parts that are the same for all builds of this machine.

    Raises :class:`UnkeyableError` or :class:`OSError` where it does not say what it is.
    """
    return {"processor": describe_processor(), "system": describe_system()}


def describe_environment(more: Collection[str] = ()) -> str:
    """Returns the variables that compilers read, and ``more`` of them, as they are set."""
    return repr([(name, os.environ[name]) for name in (*_VARIABLES, *more) if name in os.environ])


def key_of(parts: Mapping[str, str]) -> str:
    """Returns the key that the parts make."""
    return digest(repr(sorted(parts.items())).encode(errors="surrogatepass"))


class Command:
    """The tokens of a command, with digests in the place of the files that they name."""

    def __init__(
        self,
        tokens: Sequence[str],
        target: str,
        roots: Mapping[str, str],
        texts: Mapping[str, bytes],
        known: Collection[str] = (),
        store: ClosureStore | None = None,
    ) -> None:
        """``known``: folders of headers that need not be read, because another part of the key stands for them.

        ``store``: where processes save for each other what headers include.
        """
        self._tokens, self._target, self._texts, self._known, self._store = tokens, target, texts, known, store
        #: What the sources and their headers do with the paths of files; set by :meth:`read`.
        self.paths = PathUse.NONE
        # The longest first: one may be in another one.
        self._roots = sorted(
            ((path, name) for path, name in roots.items() if len(path) > 1), key=lambda root: -len(root[0])
        )
        self._folders: list[str] = []

    def read(self) -> list[str]:
        """Returns the tokens, and what the headers of all sources are.

        Raises :class:`UnkeyableError`, :class:`OSError`, and what :func:`lockcache.headers.fingerprint` does.
        """
        found, sources, is_folder = [], [], False
        for at, token in enumerate(self._tokens):
            flag = next((flag for flag in _INCLUDE_FLAGS if token.startswith(flag)), "")
            if is_folder or (flag and token != flag):
                self._folders.append(token if is_folder else token.removeprefix(flag))
                found.append("" if is_folder else flag)
                is_folder = False
                continue
            is_folder = bool(flag)
            content = self._content(token)
            if at and self._tokens[at - 1] in _INCLUDED and not self._is_read(token, content):
                raise UnkeyableError(f"what {token} includes is not known")
            if content is not None and token.endswith(_SOURCES):
                sources.append((token, content))
            found.append(self._named(token) if content is None else digest(self._private(content)))
            found += [digest(read_file(path)) for path in _files_within(token)]
        for name in _INCLUDE_VARIABLES:
            self._folders += filter(None, os.environ.get(name, "").split(os.pathsep))
        if sources:
            found.append(self._headers(sources[0][0], sources))
        return found

    def _content(self, token: str) -> bytes | None:
        if token == self._target:
            return None  # also where it is there already
        if token in self._texts:
            return self._texts[token]
        return read_file(token) if os.path.isabs(token) and os.path.isfile(token) else None

    @staticmethod
    def _is_read(token: str, content: bytes | None) -> bool:
        """Returns whether a file that is included by an option is searched for includes of its own."""
        return content is not None and token.endswith(_SOURCES)

    def _named(self, token: str) -> str:
        if token == self._target:
            return "the target"
        if "rpath" in token:  # where the loader searches is part of the output
            return token
        for path, name in self._roots:
            token = token.replace(path, name)
        return token

    def _private(self, content: bytes) -> bytes:
        for path, name in self._roots:
            content = content.replace(os.fsencode(path), name.encode())
        return content

    def _headers(self, called: str, sources: Sequence[tuple[str, bytes]]) -> str:
        """Returns the digest of the headers. Those that are included by a path are searched by name, in their folder.

        The folder is private: an old torch writes a header into Inductor's own directory. Those of the sources are
        searched for names in quotes alone; without such names a closure has no private path, and is saved for others.
        """
        searched, private = self._searched(), [os.path.dirname(path) for path, _ in sources]

        def shorten(match: re.Match[bytes]) -> bytes:
            private.append(os.fsdecode(match[2]))
            return match[1] + match[3]

        text = b"\n".join(_IS_INCLUDED_BY_PATH.sub(shorten, content) for _, content in sources)
        closure = examine(text, searched, name=called, store=self._store)
        if closure.looked_around:
            closure = examine(text, [*searched, *private], name=called)
        self.paths |= closure.paths
        return closure.placed.hex()

    def _searched(self) -> list[str]:
        """Returns the folders to read. Known ones are among them where one of the others may shadow their headers."""
        others = [path for path in self._folders if path not in self._known]
        if not (others and self._known):
            return others
        known = {os.path.realpath(path) for path in self._known}
        others = [path for path in others if os.path.realpath(path) not in known]
        named = {name for path in known for name in _listed(path)}
        return self._folders if any(named & _listed(path) for path in others) else others


def _listed(folder: str) -> set[str]:
    try:
        return {*os.listdir(folder)}
    except OSError:  # the compiler passes over it too
        return set()


def _files_within(token: str) -> Iterator[str]:
    """Yields the files that an option names, such as ``-fprofile-use=/a/profile`` or ``-Wl,-T,/a/script``."""
    for part in re.split(r"[=,@]", token)[1:]:
        if os.path.isabs(part) and os.path.isfile(part):
            yield part


def describe_compiler(program: str, ask: Callable[[str], str]) -> str:
    """Returns which compiler a program is: its bytes, and what it says about itself, ``ask(program)``.

    Raises :class:`UnkeyableError` or :class:`OSError` for one that cannot be described.
    """
    path = shutil.which(program)
    if path is None:
        raise UnkeyableError(f"there is no {program}")
    path = os.path.realpath(path)
    status = os.stat(path)
    return _described(program, ask, path, status.st_size, status.st_mtime_ns, status.st_ino)


@functools.cache
def _described(program: str, ask: Callable[[str], str], path: str, *_: int) -> str:
    linked = _linked_gcc(path)
    said = linked or ask(program)
    if not said:
        raise UnkeyableError(f"{program} does not say which compiler it is")
    # nvcc says the number of its build, and has 30 MB.
    is_numbered = os.path.basename(path) == "nvcc"
    return linked or f"{describe_binary(path) if is_numbered else digest(read_file(path))} {said}"


def describe_binary(path: str) -> str:
    """Returns which build of a program a file is: its size, and its head, which has the places of all parts of it."""
    with open(path, "rb") as file:
        return f"{os.fstat(file.fileno()).st_size} {digest(file.read(_HEAD_BYTES))}"


def _linked_gcc(path: str) -> str:
    """Returns which gcc a program is, by what the linker wrote into it; nothing for another program.

    What a gcc says about itself is in its program, which then need not be run, nor be read as a whole.
    """
    if not _IS_GCC.search(os.path.basename(path)):
        return ""
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
        return f"gcc {os.fstat(file.fileno()).st_size} {digest(head)}" if _BUILD_ID in head else ""


@functools.cache
def describe_processor() -> str:
    """Returns which processor this is, without clocks. Raises :class:`UnkeyableError` or :class:`OSError`."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        lines = {line.strip() for line in file if line.partition(":")[0].strip().lower() in _OF_PROCESSORS}
    if not lines:
        raise UnkeyableError("/proc/cpuinfo does not say which processor this is")
    return "\n".join(sorted(lines))


@functools.cache
def describe_system() -> str:
    """Returns the C library and the Python for which something is built. Raises :class:`UnkeyableError`."""
    try:
        library = os.confstr("CS_GNU_LIBC_VERSION")
    except ValueError:
        library = None
    if not library:
        raise UnkeyableError("the C library does not say which version it is")
    return f"{os.uname().machine} {library} {sys.implementation.cache_tag} {sys.version}"


def read_file(path: str) -> bytes:
    """Returns what a file contains. Raises :class:`UnkeyableError` for one that is too large, and :class:`OSError`."""
    with open(path, "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise UnkeyableError(f"{path} is larger than {_MOST_BYTES} bytes")
    return content


def digest(content: bytes) -> str:
    """Returns the SHA-256 of some bytes."""
    return hashlib.sha256(content, usedforsecurity=False).hexdigest()
