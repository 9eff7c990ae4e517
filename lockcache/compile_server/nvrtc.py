# SPDX-License-Identifier: Apache-2.0
"""NVRTC by ctypes: one compilation, with a precompiled header or without.

Loads the very file that the caller's process would, and nothing of cuda.core, which takes 0.3 s of a holder's start.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from lockcache.compile_server.prefix import Target

# NVRTC writes it into this much address space. CUB needs 307 MiB, of which 50 are ever resident.
_HEAP_BYTES: Final = 512 << 20
_LARGEST_HEAP_BYTES: Final = 1 << 30
_EXHAUSTED: Final = 14
_GETTERS: Final = {Target.PTX: "PTX", Target.CUBIN: "CUBIN", Target.LTOIR: "LTOIR"}


class NvrtcError(Exception):
    """NVRTC cannot do what a server needs."""


class Compiled(NamedTuple):
    """What NVRTC left."""

    #: NVRTC's number for the outcome, 0 for success.
    status: int
    code: bytes
    #: As NVRTC wrote it, with the NUL at its end.
    log: bytes
    #: The lowered names, in the order of the name expressions.
    lowered: tuple[bytes, ...] = ()


class Nvrtc:
    """One loaded NVRTC. Raises :class:`NvrtcError` or :class:`OSError` for one that cannot be used."""

    def __init__(self, path: str) -> None:
        self._library: Any = ctypes.CDLL(path)
        try:
            self._set_heap = self._library.nvrtcSetPCHHeapSize
            self._required = self._library.nvrtcGetPCHHeapSizeRequired
            self._create_status = self._library.nvrtcGetPCHCreateStatus
            self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        except AttributeError as error:
            raise NvrtcError(f"this NVRTC has no precompiled headers: {error}") from None
        self._check(self._set_heap(ctypes.c_size_t(_HEAP_BYTES)))

    def version(self) -> tuple[int, int]:
        """Returns the version that the library states."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return major.value, minor.value

    def create_header(self, head: bytes, name: bytes, options: Sequence[bytes], path: str) -> bytes:
        """Compile ``head`` into a precompiled header at ``path``. Returns the log. Raises :class:`NvrtcError`."""
        creating = [*options, b"--create-pch=" + os.fsencode(path)]
        status, required, log = self._try_header(head, name, creating)
        if status == _EXHAUSTED and _HEAP_BYTES < required <= _LARGEST_HEAP_BYTES:
            self._check(self._set_heap(ctypes.c_size_t(required)))
            status, required, log = self._try_header(head, name, creating)
        if status:
            raise NvrtcError(f"no precompiled header: {self._words(status)}, {required} bytes needed")
        return log

    def _try_header(self, head: bytes, name: bytes, options: Sequence[bytes]) -> tuple[int, int, bytes]:
        """Returns NVRTC's number for the outcome, the bytes that its heap has to have, and the log."""
        with self._program(head, name) as program:
            if self._compile(program, options):
                raise NvrtcError(f"its includes alone do not compile: {self._log(program)[-500:]!r}")
            required = ctypes.c_size_t()
            self._check(self._required(program.handle, ctypes.byref(required)))
            return int(self._create_status(program.handle)), required.value, self._log(program)

    def compile(
        self, source: bytes, name: bytes, options: Sequence[bytes], target: Target, names: Sequence[bytes]
    ) -> Compiled:
        """Compile a program as cuda.core does. Raises :class:`NvrtcError`."""
        with self._program(source, name) as program:
            for each in names:
                self._check(self._library.nvrtcAddNameExpression(program.handle, each))
            status = self._compile(program, options)
            log = self._log(program)
            if status:
                return Compiled(status, b"", log)
            code = self._get(program, _GETTERS[target])
            return Compiled(0, code, log, tuple(self._lowered(program, each) for each in names))

    def _compile(self, program: _Program, options: Sequence[bytes]) -> int:
        given = (ctypes.c_char_p * len(options))(*options)
        return int(self._library.nvrtcCompileProgram(program.handle, len(options), given))

    def _program(self, source: bytes, name: bytes) -> _Program:
        program = _Program(self._library)
        self._check(self._library.nvrtcCreateProgram(ctypes.byref(program.handle), source, name, 0, None, None))
        return program

    def _log(self, program: _Program) -> bytes:
        return self._get(program, "ProgramLog")

    def _get(self, program: _Program, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program.handle, ctypes.byref(size)))
        if not size.value:
            return b""
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program.handle, buffer))
        return buffer.raw

    def _lowered(self, program: _Program, name: bytes) -> bytes:
        found = ctypes.c_char_p()
        self._check(self._library.nvrtcGetLoweredName(program.handle, name, ctypes.byref(found)))
        return found.value or b""

    def _check(self, status: int) -> None:
        if status:
            raise NvrtcError(self._words(status))

    def _words(self, status: int) -> str:
        words: bytes = self._library.nvrtcGetErrorString(status)
        return words.decode(errors="replace")


class _Program:
    def __init__(self, library: Any) -> None:
        self._library = library
        self.handle = ctypes.c_void_p()

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *exception: object) -> None:
        self._library.nvrtcDestroyProgram(ctypes.byref(self.handle))
