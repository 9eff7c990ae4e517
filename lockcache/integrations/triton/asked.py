# SPDX-License-Identifier: Apache-2.0
"""Compilations that Triton is asked for: what its key of a kernel is made of, which a cache manager does not get.

Triton hashes the source and has the backend read the options, in the thread that asks its cache next.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

from lockcache.integrations.adapter import Parts
from lockcache.integrations.key_parts import parts_of_triton

__all__ = ["asked"]

# Triton cuts the names of files.
_LONGEST_NAME = 150


class _Asked(threading.local):
    """The source that a thread hashed last, and the backend and the options of that."""

    source: Any = None
    backend: Any = None
    options: Any = None

    def take(self, name: str) -> Parts | None:
        """Returns what says the parts of the key of the kernel ``name``; ``None`` if another one was hashed last."""
        source, backend, options = self.source, self.backend, self.options
        self.source = self.backend = self.options = None
        if source is None or str(getattr(source, "name", ""))[:_LONGEST_NAME] != name:
            return None
        return functools.partial(parts_of_triton, source, backend, options)

    def note_of(self, compiler: Any, backends: Any) -> None:
        """Note what the sources and backends of Triton's modules are asked; nothing of those that are others."""
        with contextlib.suppress(AttributeError):
            for source in (compiler.ASTSource, compiler.IRSource):
                source.hash = self._noting_source(source.hash)
            for backend in {each.compiler for each in backends.backends.values()}:
                backend.parse_options = self._noting_options(backend.parse_options)

    def _noting_source(self, own: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(own)
        def hash_(source: Any) -> Any:
            self.source = source
            return own(source)

        return hash_

    def _noting_options(self, own: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(own)
        def parse_options(backend: Any, *args: Any, **kwargs: Any) -> Any:
            options = own(backend, *args, **kwargs)
            self.backend, self.options = backend, options
            return options

        return parse_options


asked = _Asked()
