# SPDX-License-Identifier: Apache-2.0
"""A program that is made where it is first needed: cuda.core's constructor loads NVRTC.

Keeps the promise of a drop-in (change the import, nothing else) while a process whose look-ups all hit loads no
compiler, which takes 10 ms of processor time. What cuda.core's constructor would refuse is refused at once. The copy of
the source that it writes for debuggers is written when a compiler needs it.
"""

from __future__ import annotations

import copy
from typing import Any

import cuda.core
from cuda.core import ProgramOptions

from lockcache.fork import unforked
from lockcache.keys import versions

# Under ``lockcache run`` cuda.core's own name stands for a subclass of this (:mod:`lockcache.integrations.cuda_core`).
OwnProgram: Any = getattr(cuda.core, "_program_without_lockcache", None) or cuda.core.Program


class LazyProgram(OwnProgram):  # type: ignore[misc] # cuda.core is untyped
    """A ``cuda.core.Program`` that may not have been made yet. :meth:`_made_compile` is its ``compile``."""

    # Of an object whose constructor did not run or failed, cuda.core speaks.
    _is_made = True
    _is_closed = False

    def __init__(self, code: Any, code_type: Any, options: ProgramOptions) -> None:
        if not isinstance(options, ProgramOptions):
            super().__init__(code, code_type, options)  # which refuses them
        self._code, self._code_type, self._options = code, code_type, options
        # cuda.core reads some of the options in its constructor and some when it compiles.
        self._options_then = [value[:] if type(value) is list else value for value in vars(options).values()]
        self._options_made: ProgramOptions | None = None
        self._is_made = self._is_closed = False
        if not _can_wait(code, code_type, options):
            self._make()

    def _make(self) -> None:
        # One for all programs, since loading NVRTC takes most of the time. It is free in a forked child, which would
        # wait for ever for a lock of a thread that it does not have, and for a signal handler in the same thread.
        with unforked:
            if self._is_made:
                return
            options = self._options
            if self._has_new_options():
                options = self._options_made = copy.copy(options)
                vars(options).update(zip(vars(options), self._options_then, strict=True))
            super().__init__(self._code, self._code_type, options)
            self._is_made = True
            if self._is_closed:
                super().close()

    def _has_new_options(self) -> bool:
        """Returns whether the options were changed since the constructor."""
        return [*vars(self._options).values()] != self._options_then

    def _made_compile(self, target_type: Any, names: Any, logs: Any, cache: Any) -> Any:
        self._make()
        if self._options_made is not None:
            vars(self._options_made).update(vars(self._options))
        return super().compile(target_type, names, logs, cache=cache)

    def close(self) -> None:
        """Destroy this program."""
        with unforked:
            self._is_closed = True
            if self._is_made:
                super().close()

    @property
    def is_closed(self) -> bool:
        """Whether this program has been closed."""
        return bool(super().is_closed) if self._is_made else self._is_closed

    @property
    def backend(self) -> Any:
        """The compiler, a ``cuda.core.typing.CompilerBackendType``."""
        self._make()
        return super().backend

    @property
    def handle(self) -> Any:
        """The handle of the compiler's own program."""
        self._make()
        return super().handle

    def __repr__(self) -> str:
        self._make()
        return str(super().__repr__())


def _can_wait(code: object, code_type: object, options: ProgramOptions) -> bool:
    """Returns whether NVRTC was not loaded, and cuda.core's constructor would load it and refuse nothing."""
    if not versions.is_nvrtc_found():  # first: a process that compiles does not read the source for this
        return False
    is_cxx = isinstance(code_type, str) and code_type.lower() == "c++"
    return is_cxx and _is_text(code) and (options.name is None or _is_text(options.name)) and not options.extra_sources


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
