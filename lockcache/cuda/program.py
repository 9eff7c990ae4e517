# SPDX-License-Identifier: Apache-2.0
"""Program: cuda.core's, with a cache that also accepts what cuda.core's own refuses: templates and headers.

Keeps the promise of a drop-in (change the import, nothing else) and adds to ``cache=``: one process compiles; the
symbol mapping of templates is published with the code as one unit and comes back on a hit; the files that the source
can reach through ``#include`` are part of the key. Source of the interface: ``cuda.core.Program`` (cuda.core 1.2).

Decides when a result is not worth keeping: if a header changed while it was being compiled, if another NVRTC compiled
it than the key says, and where a fault of NVRTC changes it (:mod:`.restrict`).
"""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import cuda.core
from cuda.core import ObjectCode, ProgramOptions

from lockcache import serving
from lockcache.arguments import configured_text, is_disabled
from lockcache.cuda import restrict
from lockcache.cuda.headers import examine_headers
from lockcache.cuda.lazy_program import LazyProgram
from lockcache.errors import LockcacheError, UncacheableError
from lockcache.explain import statement_of
from lockcache.keys import Headers, all_variables, prints_one, program_keys, versions
from lockcache.resource import Entry, ProgramCacheResource, coerce_value
from lockcache.serving import watch

__all__ = ["Program"]

_WRAP: Final[dict[str, Callable[..., ObjectCode]]] = {
    "ptx": ObjectCode.from_ptx,
    "cubin": ObjectCode.from_cubin,
    "ltoir": ObjectCode.from_ltoir,
}

# PTX is left to whichever linker cuda.core picks, which is not a name to tell entries by.
_COMPILERS: Final = {"c++": "nvrtc", "nvvm": "nvvm"}

# Begins as the warning of a compilation does, for filters by its text.
_TOO_NEW: Final = "The CUDA driver version is older than the backend version: this driver will not load the cached PTX."

#: The metadata that holds what the compiler wrote. A record of a usual file system has room for some of it.
_LOG: Final = "log"
_MOST_LOG_CHARACTERS: Final = 16_384

_EMPTY: Final = "LTO-IR without code: it needs link_time_optimization=True"
_TAINTED: Final = "it is compiled without restrict, after a program with it: NVRTC goes on as if with restrict"


class Program(LazyProgram):
    """A program to compile, as ``cuda.core.Program``: same constructor, same ``compile``.

    With ``cache=`` one of lockcache's back ends, ``name_expressions`` and headers (``include_path``, ``pre_include``,
    ``#include`` in the code) are cached too, and of all processes that share the cache and miss at once, one compiles.

    NVRTC 12.9 to 13.5 goes on as with ``restrict=True`` after the first program compiled so in a process; a later one
    is asked. What is compiled without it from then on is returned and not stored: other processes would get code that
    is wrong where pointers alias. Compile programs with ``restrict`` in a process of their own if the others should be
    cached. What NVRTC was asked for past this class (by ``cuda.core.Program``, say) is not known here.
    """

    def __init__(
        self,
        code: str | bytes | bytearray,
        code_type: str,
        options: ProgramOptions | dict[str, Any] | None = None,
    ) -> None:
        if options is None or isinstance(options, dict):
            options = ProgramOptions(**(options or {}))
        super().__init__(code, code_type, options)
        self._source = bytes(code) if isinstance(code, bytearray) else code
        self._source_type = str(code_type)
        #: All names that NVRTC was given for this program: it keeps them.
        self._given_names: set[Any] = set()

    def compile(
        self,
        target_type: str,
        name_expressions: tuple[str, ...] | list[str] = (),
        logs: Any = None,
        *,
        cache: Any = None,
    ) -> ObjectCode:
        """Compile to ``"ptx"``, ``"cubin"`` or ``"ltoir"``, or take it from ``cache``.

        On a hit nothing is compiled; the symbol mapping is that of a fresh compilation, ``logs`` receives what that
        wrote (the first 16,384 characters), and the :class:`RuntimeWarning` about PTX of C++ that is too new for this
        host's driver is given as well.

        What cannot be cached (precompiled headers, ``time``, ``__TIME__`` in the code, a header that cannot be read, a
        compilation that gives no code) is compiled, returned and not stored: ``cache.stats().uncacheable`` counts it,
        and the log has one warning for each reason.

        Raises what ``cuda.core.Program.compile`` raises, and after ``lockcache.seal("error")`` :class:`SealedError`. A
        cache that is not one of lockcache's is
        left to cuda.core.
        """
        if isinstance(cache, ProgramCacheResource) and is_disabled():
            cache._recount(dropped_writes=1)
            cache = None
        names = _read_once(name_expressions)
        if not isinstance(cache, ProgramCacheResource):
            return self._compile_now(target_type, names, logs, cache)
        if self.is_closed:
            raise RuntimeError("Program has been closed")
        try:
            if self._has_new_options():
                raise UncacheableError("its options were changed after it was made")
            compilation = _Compilation(self, target_type, names, logs, cache)
        except (LockcacheError, OSError, TypeError, ValueError) as error:  # if it is a mistake, the compiler says so
            reason = getattr(error, "reasons", "") or str(error)
            cache._note_uncacheable(reason)
            if not watch.is_on:
                return self._compile_now(target_type, names, logs)
            with serving.compiling(str(self._options.name), reason):
                return self._compile_now(target_type, names, logs)
        code = compilation.cached(cache)
        if not compilation.has_compiled and compilation.is_too_new():  # cuda.core warned of what it compiled
            warnings.warn(_TOO_NEW, RuntimeWarning, stacklevel=2)
        return code

    def _compile_now(self, target_type: str, names: Any, logs: Any, cache: Any = None) -> ObjectCode:
        if self._source_type.lower() == "c++" and self._options.restrict:
            restrict.note_restrict()
        self._given_names |= _names_in(names)
        return self._made_compile(target_type, names, logs, cache)


class _Compilation:
    """One call of :meth:`Program.compile` with a cache."""

    def __init__(
        self, program: Program, target_type: str, name_expressions: Any, logs: Any, cache: ProgramCacheResource
    ) -> None:
        self._program = program
        self._closures = cache._closures
        #: Whether the compiler ran, in which case cuda.core has asked what the driver can load.
        self.has_compiled = False
        self._options = program._options
        self._target_type = str(target_type)
        self._names = name_expressions
        self._logs = logs
        #: What the compiler wrote, here or in a compile server; ``None`` if neither was asked.
        self._written: str | None = None
        self._is_cxx = program._source_type.lower() == "c++"
        #: The version of NVRTC that the key has, or an earlier one.
        self._nvrtc = versions.nvrtc() if self._is_cxx else b""
        self._headers = self._examine()
        self._keys = program_keys(
            code=program._source,
            code_type=program._source_type,
            options=self._options,
            target_type=self._target_type,
            name_expressions=self._names,
            headers=self._headers,
        )

    def cached(self, cache: ProgramCacheResource) -> ObjectCode:
        """Returns the code; compiles it only if no other process has done so or is doing so."""
        # A copy of a directory may have lost the metadata. What was compiled without names does not need them.
        is_whole = _has_symbols if self._names and self._is_cxx else None
        if self._keys.with_paths is not None:
            found = _look(cache, self._keys.key, is_whole) or _look(cache, self._keys.with_paths(), is_whole)
            if found is not None:
                return self._wrap(found)
        try:
            compute = partial(self._compute, cache, is_whole)
            entry = cache.get_or_compute_entry(self._keys.key, compute, is_whole=is_whole)
        except _StoredElsewhere as stored:
            entry = stored.entry
        except _NotToKeepError as result:
            cache._note_uncacheable(result.reason)
            entry = result.entry
        return self._wrap(entry)

    def _wrap(self, entry: Entry) -> ObjectCode:
        """Returns a fresh ObjectCode, as cuda.core makes one, and hands on what the compilation wrote."""
        log = entry.metadata.get(_LOG) if self._written is None else self._written
        if log and self._logs is not None:
            self._logs.write(log)
        mapping = entry.metadata.get("symbol_mapping", {})
        return _WRAP[self._target_type.lower()](entry.code, name=self._options.name, symbol_mapping=dict(mapping))

    def is_too_new(self) -> bool:
        """Returns whether the driver cannot load the PTX that this host's NVRTC makes. Asks it for nothing else."""
        is_asked = self._target_type.lower() == "ptx" and self._is_cxx
        return is_asked and not _can_load_ptx()

    def _compute(self, cache: ProgramCacheResource, is_whole: Callable[[Entry], bool] | None) -> Entry:
        """Returns what is to be stored under the key without paths; raises with what is not."""
        keys = self._keys
        if keys.with_paths is None:
            return self._compile_to_keep()
        key = keys.with_paths()
        found = _look(cache, key, is_whole)  # the holder before this one may have stored it there
        if found is not None:
            cache._recount(misses=-1)
            raise _StoredElsewhere(found)
        begun_ns = time.perf_counter_ns()
        entry = self._compile_to_keep()
        if prints_one(entry.code, self._target_type.lower(), keys.printed):
            raise _StoredElsewhere(cache._replace(key, entry, time.perf_counter_ns() - begun_ns))
        return entry

    def _compile_to_keep(self) -> Entry:
        entry = self._compile()
        reason = self._why_not_to_keep(entry)
        if reason:
            raise _NotToKeepError(entry, reason)
        return entry

    def _why_not_to_keep(self, entry: Entry) -> str:
        if not entry.code:
            return _EMPTY if self._target_type.lower() == "ltoir" else "the compiler gave no code"
        if self.has_compiled and (reason := self._why_not_as_others_would()):
            return reason
        return f"{self._label()}: a header changed while it was compiled" if self._has_new_headers() else ""

    def _why_not_as_others_would(self) -> str:
        """Returns why the NVRTC of this process may have given something else than that of another process."""
        if self._is_cxx and not self._options.restrict and restrict.is_tainted(str(self._options.arch)):
            return _TAINTED
        if self._is_cxx and (reason := self._why_another_nvrtc()):
            return reason
        if self._program._given_names - _names_in(self._names):
            return "it was compiled with other name expressions before, which NVRTC keeps"
        return ""

    def _why_another_nvrtc(self) -> str:
        try:
            all_variables()  # not what they were when it was loaded, perhaps
            return "" if versions.load_nvrtc() == self._nvrtc else "another NVRTC was loaded than was found"
        except UncacheableError as error:
            return str(error)

    def _has_new_headers(self) -> bool:
        try:
            return self._examine() != self._headers
        except (LockcacheError, OSError):  # a new one that cannot be read, or has the time in it
            return True

    def _compile(self) -> Entry:
        served = self._served() if self._is_cxx and configured_text("LOCKCACHE_COMPILE_SERVER") else None
        return self._compile_here() if served is None else served

    def _served(self) -> Entry | None:
        """Returns what a compile server compiled; ``None`` where this process has to."""
        from lockcache.compile_server import Mode, configured_mode

        mode = configured_mode()
        if mode is Mode.OFF:
            return None
        from lockcache.cuda.served import compile_by_server

        names = self._names if isinstance(self._names, tuple) else None
        if names is None or _names_in(names) != set(names):
            return None  # the compiler says what is wrong with them
        source, options, nvrtc = self._program._source, self._options, self._nvrtc
        answer = compile_by_server(source, options, self._target_type, names, nvrtc, mode, self._closures)
        if answer is None:
            return None
        self._written = answer.written
        mapping = dict(zip(names, answer.lowered, strict=True))
        code = _WRAP[self._target_type.lower()](answer.code, name=self._options.name, symbol_mapping=mapping)
        return self._entry(code, answer.release)

    def _compile_here(self) -> Entry:
        log = io.StringIO()
        compiled = self._program._compile_now(self._target_type, self._names, log)
        self.has_compiled, self._written = True, log.getvalue()
        return self._entry(compiled)

    def _entry(self, compiled: ObjectCode, release: str = "") -> Entry:
        code, found = coerce_value(compiled) if compiled.code else (b"", {})
        if self._written:
            found[_LOG] = _bounded(self._written)
        if self._options.arch:
            found["arch"] = self._options.arch
        compiler = self._compiler(found.get("compiler"), release)
        if compiler:
            found["compiler"] = compiler
        return Entry(code, found)

    def _compiler(self, stated: str | None, release: str) -> str | None:
        """Returns the compiler with the version that it left in its output: ``nvrtc 13.5.37``."""
        tool = _COMPILERS.get(self._program._source_type.lower())
        if tool and stated:
            return f"{tool} {stated.split()[-1]}"
        # LTO-IR says nothing of its compiler.
        return f"{tool} {release or versions.nvrtc_release()}" if tool == "nvrtc" else stated

    def _examine(self) -> Headers | None:
        if not self._is_cxx:
            return None
        return examine_headers(self._program._source, self._options, self._target_type, self._closures)

    def _label(self) -> str:
        stated = statement_of(self._keys.key)
        return stated.label if stated is not None else str(self._options.name)


class _NotToKeepError(Exception):
    """Carries a result past the cache: it is right for its caller, and not to be stored, for this reason."""

    def __init__(self, entry: Entry, reason: str) -> None:
        super().__init__()
        self.entry = entry
        self.reason = reason


class _StoredElsewhere(BaseException):  # like GeneratorExit: not a failure, after which others would not wait
    """Carries an entry that is stored under the key with paths: those who wait for the other key find it there."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.entry = entry


def _look(cache: ProgramCacheResource, key: bytes, is_whole: Callable[[Entry], bool] | None) -> Entry | None:
    """Returns a whole entry, counted as a hit; ``None`` counts as nothing. Takes no turn."""
    found = cache._peek(key)
    if found is None:
        cache._recount(misses=-1)
    elif is_whole is None or is_whole(found):
        return found
    else:
        cache._recount(hits=-1)
    return None


def _names_in(name_expressions: Any) -> set[Any]:
    names = name_expressions if isinstance(name_expressions, tuple) else ()
    return {name for name in names if isinstance(name, (str, bytes))}  # of others the compiler says what is wrong


def _read_once(name_expressions: Any) -> Any:
    """Returns the names as a tuple: the key and the compiler must both see them. A str is left to the compiler."""
    if isinstance(name_expressions, (tuple, str, bytes)) or not isinstance(name_expressions, Iterable):
        return name_expressions
    return tuple(name_expressions)


def _bounded(log: str) -> str:
    """Returns what is kept of a log."""
    if len(log) <= _MOST_LOG_CHARACTERS:
        return log
    return f"{log[:_MOST_LOG_CHARACTERS]}\n[cut: {len(log)} characters]\n"


def _has_symbols(entry: Entry) -> bool:
    return bool(entry.metadata.get("symbol_mapping"))


def _can_load_ptx() -> bool:
    # No public name has this, and a rule of our own could differ from cuda.core's.
    ask = getattr(getattr(cuda.core, "_program", None), "_can_load_generated_ptx", None)
    try:
        return ask is None or bool(ask())
    except RuntimeError:  # a host without a driver loads nothing, and may pass on what is stored
        return True
