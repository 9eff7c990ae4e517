# SPDX-License-Identifier: Apache-2.0
"""Linker: cuda.core's, with a cache for what it links: one process links, and hits come with the log of that link.

Keeps the promise of a drop-in (change the import, nothing else). cuda.core's constructor hands the objects to
nvJitLink, which compiles PTX then: 40 of the 41 ms of linking two small kernels. So here it runs when something needs
it, and on a hit nothing does. Source of the interface: ``cuda.core.Linker`` (cuda.core 1.2).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import cuda.core
from cuda.core import LinkerOptions, ObjectCode
from cuda.core.typing import CompilerBackendType

from lockcache import serving
from lockcache.arguments import is_disabled
from lockcache.errors import UncacheableError
from lockcache.keys import link_key
from lockcache.resource import Entry, ProgramCacheResource, coerce_value
from lockcache.serving import watch

_WRAP: Final[dict[str, Callable[..., ObjectCode]]] = {"ptx": ObjectCode.from_ptx, "cubin": ObjectCode.from_cubin}

_ARCH: Final = b"-arch="
#: The metadata that holds the two logs.
_LOGS: Final = "linker_logs"
# Far below what a record can hold, and above the verbose logs of a thousand kernels.
_MOST_LOG_CHARACTERS: Final = 1_000_000


class Linker(cuda.core.Linker):  # type: ignore[misc] # cuda.core is untyped
    """A linker of object codes, as ``cuda.core.Linker``: same constructor, same methods, and ``link(..., cache=)``.

    With ``cache=`` one of lockcache's back ends, of all processes that share the cache and miss at once, one links; the
    others, and later ones, get its output and its log.

    The constructor checks the types of its arguments and reads object codes that are files. What nvJitLink says of the
    objects and options is raised by the first method that needs nvJitLink, most often :meth:`link`; cuda.core's
    constructor raises it.
    """

    def __init__(self, *object_codes: ObjectCode, options: LinkerOptions | dict[str, Any] | None = None) -> None:
        self._inputs = _take(object_codes, options)
        self._is_made = self._has_closed = False
        #: Returns the logs, if what was linked last was a hit.
        self._hit_logs: Callable[[], tuple[str, str]] | None = None
        if self._inputs is None:
            super().__init__(*object_codes, options=options)

    def link(self, target_type: str, *, cache: Any = None) -> ObjectCode:
        """Link to ``"cubin"`` or ``"ptx"``, or take the result from ``cache``.

        On a hit nothing is linked, and :meth:`get_info_log` and :meth:`get_error_log` return what the link wrote. What
        cannot be cached (``ptxas_options`` that name a file) is returned and not stored: ``cache.stats().uncacheable``
        counts it, and the log has one warning for each reason.

        Raises what ``cuda.core.Linker`` raises, :class:`TypeError` for a cache that is not one of lockcache's, and
        :class:`SealedError` after ``lockcache.seal("error")``.
        """
        self._hit_logs = None
        if _is_used(cache) and not self._has_closed and target_type in tuple(_WRAP):
            inputs = self._inputs
            key = None if inputs is None else inputs.key(str(target_type), cache)
            if inputs is None:
                cache._note_uncacheable("the driver links, and the key cannot see how: install nvidia-nvjitlink")
            elif key is not None:
                return self._cached(inputs, str(target_type), key, cache)
            if watch.is_on:
                with serving.compiling("a link", "see the warning of it"):
                    return self._link(target_type)
        return self._link(target_type)

    def get_info_log(self) -> str:
        """Returns what the linker wrote; on a hit, what it wrote in the process that linked."""
        return self._logs()[0]

    def get_error_log(self) -> str:
        """Returns the errors of the linker; on a hit, those of the process that linked."""
        return self._logs()[1]

    def close(self) -> None:
        """Close this linker; what it wrote can still be read."""
        self._has_closed = True
        super().close()

    @property
    def is_closed(self) -> bool:
        """Returns whether :meth:`close` was called."""
        return self._has_closed

    @property
    def handle(self) -> Any:
        """The linker of nvJitLink or of the driver; made now if nothing needed it before."""
        self._make()
        return super().handle

    def _make(self) -> None:
        """Do what cuda.core's constructor does, unless that was done."""
        if self._inputs is not None and not self._is_made and not self._has_closed:
            super().__init__(*self._inputs.objects, options=self._inputs.options)
            self._is_made = True

    def _link(self, target_type: str) -> ObjectCode:
        self._make()
        return super().link(target_type)

    def _cached(self, inputs: _Inputs, target_type: str, key: bytes, cache: ProgramCacheResource) -> ObjectCode:
        """Returns what is stored under the key; links only if no other process has done so or is doing so."""
        found = cache.begin(key)
        if isinstance(found, Entry):
            self._hit_logs = inputs.logs_of(found, target_type)
            return inputs.wrap(found.code, target_type)
        with found as turn:
            linked = self._link(target_type)
            if not linked.code:
                cache._note_uncacheable("the linker gave no code")
                return linked
            return inputs.wrap(turn.store(self._entry(linked)).code, target_type)

    def _entry(self, linked: ObjectCode) -> Entry:
        code, metadata = coerce_value(linked)
        logs = self._logs()
        is_short = sum(map(len, logs)) <= _MOST_LOG_CHARACTERS
        return Entry(code, {**metadata, _LOGS: logs} if is_short else metadata)

    def _logs(self) -> tuple[str, str]:
        """Returns the information and the errors that the last link wrote, wherever it ran."""
        if self._hit_logs is None:
            self._make()
            return super().get_info_log(), super().get_error_log()
        return self._hit_logs()


class _Inputs(NamedTuple):
    """The arguments of a constructor as they were then: cuda.core reads them at that time, this class later."""

    objects: tuple[ObjectCode, ...]
    options: LinkerOptions
    #: The options as nvJitLink gets them.
    rendered: list[bytes]

    def key(self, target_type: str, cache: ProgramCacheResource) -> bytes | None:
        """Returns the key of this link; ``None`` if it has none, which is reported."""
        objects = [(each.code_type, each.code) for each in self.objects]
        try:
            return link_key(objects, options=self.options, rendered=self.rendered, target_type=target_type)
        except UncacheableError as error:
            cache._note_uncacheable(error.reasons or str(error))
            return None

    def wrap(self, code: bytes, target_type: str) -> ObjectCode:
        """Returns a fresh ObjectCode, as cuda.core makes one: with the linker's name, without the objects' symbols."""
        return _WRAP[target_type](code, name=self.options.name)

    def logs_of(self, entry: Entry, target_type: str) -> Callable[[], tuple[str, str]]:
        """Returns what returns the logs of a hit: those of its entry, else those of a link that is made for them.

        An entry has none if it lost its metadata, as in a copied directory, or if its back end keeps none. It is a hit
        all the same, because few programs read the logs.
        """
        logs = entry.metadata.get(_LOGS)
        if isinstance(logs, tuple) and len(logs) == 2 and all(isinstance(each, str) for each in logs):
            return lambda: logs
        return functools.cache(lambda: self._link_for_logs(target_type))

    def _link_for_logs(self, target_type: str) -> tuple[str, str]:
        linker = cuda.core.Linker(*self.objects, options=self.options)
        linker.link(target_type)
        logs = linker.get_info_log(), linker.get_error_log()
        linker.close()
        return logs


def _take(object_codes: tuple[Any, ...], options: Any) -> _Inputs | None:
    """Returns a constructor's arguments; ``None`` where cuda.core has to say what is wrong, or the driver links."""
    if not object_codes or not all(isinstance(each, ObjectCode) for each in object_codes):
        return None
    options = (
        LinkerOptions(**(options or {})) if options is None or isinstance(options, dict) else copy.deepcopy(options)
    )
    if not isinstance(options, LinkerOptions) or not _is_linked_by_nvjitlink():
        return None
    rendered = options.as_bytes()
    if options.arch is None:  # the current device's, which may be another one later
        options.arch = next(each[len(_ARCH) :].decode() for each in rendered if each.startswith(_ARCH))
    try:
        return _Inputs(tuple(map(_in_memory, object_codes)), options, rendered)
    except OSError:
        return None


def _is_linked_by_nvjitlink() -> bool:
    return bool(cuda.core.Linker.which_backend() == CompilerBackendType.NVJITLINK)


def _in_memory(given: ObjectCode) -> ObjectCode:
    """Returns an object code that is in memory, so that what is linked is what the key was made of."""
    if not isinstance(given.code, str):
        return given if isinstance(given.code, bytes) else _rewrapped(given, bytes(given.code))
    with open(given.code, "rb") as file:
        return _rewrapped(given, file.read())


def _rewrapped(given: ObjectCode, code: bytes) -> ObjectCode:
    wrap = getattr(ObjectCode, f"from_{given.code_type}")
    made: ObjectCode = wrap(code, name=given.name, symbol_mapping=given.symbol_mapping)
    return made


def _is_used(cache: Any) -> bool:
    """Returns whether there is a cache, and not switched off. Raises TypeError for what is not one of lockcache's."""
    if cache is None:
        return False
    if not isinstance(cache, ProgramCacheResource):
        raise TypeError(f"cache must be one of lockcache's or None, got {type(cache).__name__}")
    if is_disabled():
        cache._recount(dropped_writes=1)
        return False
    return True
