# SPDX-License-Identifier: Apache-2.0
"""Compression of bundles that are packed: zstd where its package is installed, and none.

A compressed file is recognised by its first bytes, whatever its name is. The package is imported when the first file is
compressed or decompressed: an installation without it packs and unpacks files that are not compressed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import BinaryIO, Final, Protocol, cast

from lockcache.errors import ArchiveError, how_to_install
from lockcache.filestream import START_BYTES, begins

__all__ = ["DEFAULT_LEVEL", "LEVELS", "UNCOMPRESSED", "Decompressed", "compressing", "is_packed", "why_no_zstd"]

#: The level at which a bundle is not compressed.
UNCOMPRESSED: Final = 0
#: The levels of the zstd command. Cubins shrink to a third at 3 and to a quarter at 19, forty times as slowly.
LEVELS: Final = range(1, 23)
DEFAULT_LEVEL: Final = 3

# The magic number of RFC 8878, 3.1.1.
_ZSTD: Final = b"\x28\xb5\x2f\xfd"

# The window that `zstd -22` needs and `zstd -d` allows: 128 MiB. A larger one could fill the memory.
_LARGEST_WINDOW_BYTES: Final = 1 << 27


class _Source(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


def is_packed(path: str) -> bool:
    """Returns whether a file begins as a bundle, compressed or not. Raises :class:`OSError`.

    Of what is compressed that is not known without zstandard, and the answer is no.
    """
    with open(path, "rb") as file, contextlib.suppress(ArchiveError, ModuleNotFoundError):
        source, start = Decompressed(file), b""
        while len(start) < START_BYTES and (part := source.read(START_BYTES - len(start))):
            start += part
        return begins(start)
    return False


def why_no_zstd() -> str | None:
    """Returns why bundles cannot be compressed here, and what to do; ``None`` if they can."""
    try:
        import zstandard  # noqa: F401
    except ModuleNotFoundError as error:
        return f"zstd needs {error.name}: {how_to_install('cli')}"
    return None


@contextlib.contextmanager
def compressing(out: BinaryIO, level: int) -> Iterator[BinaryIO]:
    """Yields what to write a bundle to, which compresses it into ``out`` unless ``level`` is 0."""
    if level == UNCOMPRESSED:
        yield out
        return
    import zstandard

    with zstandard.ZstdCompressor(level=level, write_checksum=True).stream_writer(out, closefd=False) as stream:
        yield cast(BinaryIO, stream)


class Decompressed:
    """The bytes of a file, decompressed if zstd compressed them."""

    def __init__(self, file: BinaryIO) -> None:
        self._packed = _Counted(file)
        self._source: _Source = self._packed
        if self._packed.ahead == _ZSTD:
            self._source = _Frame(cast(BinaryIO, self._packed))

    @property
    def packed_bytes(self) -> int:
        """The bytes of the file that were read."""
        return self._packed.read_bytes

    def read(self, size: int = -1, /) -> bytes:
        """Returns up to ``size`` bytes; none at the end. Raises :class:`ArchiveError` for a damaged frame."""
        return self._source.read(size)


class _Frame:
    """What zstd compressed."""

    def __init__(self, packed: BinaryIO) -> None:
        import zstandard

        unpacker = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW_BYTES)
        self._stream = unpacker.stream_reader(packed, closefd=False)
        self._error = zstandard.ZstdError

    def read(self, size: int = -1, /) -> bytes:
        try:
            return self._stream.read(size)
        except self._error as error:
            raise ArchiveError(f"it is damaged: {error}") from error


class _Counted:
    """A file of which the beginning was read ahead, and how much of it was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.ahead = b""
        while len(self.ahead) < len(_ZSTD) and (
            part := file.read(len(_ZSTD) - len(self.ahead))
        ):  # a pipe may have less
            self.ahead += part
        self.read_bytes = len(self.ahead)

    def read(self, size: int = -1, /) -> bytes:
        if self.ahead:
            taken = len(self.ahead) if size < 0 else size
            part, self.ahead = self.ahead[:taken], self.ahead[taken:]
            return part
        part = self._file.read(size)
        self.read_bytes += len(part)
        return part
