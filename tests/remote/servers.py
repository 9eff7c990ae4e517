"""The servers of :mod:`lockcache_stress.servers`, for tests, which are skipped where one cannot be had."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache_stress import servers
from lockcache_stress.errors import UnusableError
from lockcache_stress.servers import FAULTS, FaultProxy, free_port

__all__ = ["FAULTS", "KINDS", "FaultProxy", "Nginx", "SeaweedFS", "Valkey", "free_port", "valkey"]


class _Skipping:
    def __init__(self, *given: Any, **named: Any) -> None:
        try:
            super().__init__(*given, **named)
        except UnusableError as error:
            pytest.skip(str(error))


class Valkey(_Skipping, servers.Valkey):
    """Valkey, or a test that is skipped."""


class Nginx(_Skipping, servers.Nginx):
    """nginx with WebDAV, or a test that is skipped."""


class SeaweedFS(_Skipping, servers.SeaweedFS):
    """SeaweedFS, or a test that is skipped."""


KINDS = {"valkey": Valkey, "s3": SeaweedFS, "http": Nginx}


@contextlib.contextmanager
def valkey(folder: Path, *words: str) -> Iterator[Valkey]:
    server = Valkey(folder, *words)
    try:
        yield server
    finally:
        server.kill()
