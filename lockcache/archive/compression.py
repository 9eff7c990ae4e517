"""Compression of archives: zstd where its package is installed, and none.

An archive is recognised by its first bytes, whatever its name is. The package is imported when the first archive is
compressed or decompressed: an installation without it packs and unpacks archives that are not compressed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import BinaryIO, Final, cast

from lockcache.archive.members import MANIFEST, Source
from lockcache.errors import ArchiveError, how_to_install

#: The level at which an archive is not compressed.
UNCOMPRESSED: Final = 0
#: The levels of the zstd command. Cubins shrink to a third at 3 and to a quarter at 19, forty times as slowly.
LEVELS: Final = range(1, 23)
DEFAULT_LEVEL: Final = 3

# The magic number of RFC 8878, 3.1.1.
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
# A tar begins with the name of its first member, in a field that zeros fill.
_TAR: Final = MANIFEST.encode() + b"\0"

# The window that `zstd -22` needs and `zstd -d` allows: 128 MiB. A larger one could fill the memory.
_LARGEST_WINDOW_BYTES: Final = 1 << 27

_NOT_ONE: Final = "this is not an archive of `lockcache pack`"


def is_archive(path: str) -> bool:
    """Returns whether a file begins as an archive does, or as what zstd compressed. Raises :class:`OSError`."""
    with open(path, "rb") as file:
        return file.read(len(_TAR)).startswith((_ZSTD, _TAR))


def why_no_zstd() -> str | None:
    """Returns why archives cannot be compressed here, and what to do; ``None`` if they can."""
    try:
        import zstandard  # noqa: F401
    except ModuleNotFoundError as error:
        return f"zstd needs {error.name}: {how_to_install('cli')}"
    return None


@contextlib.contextmanager
def compressing(out: BinaryIO, level: int) -> Iterator[BinaryIO]:
    """Yields what to write an archive to, which compresses it into ``out`` unless ``level`` is 0."""
    if level == UNCOMPRESSED:
        yield out
        return
    import zstandard

    with zstandard.ZstdCompressor(level=level, write_checksum=True).stream_writer(out, closefd=False) as stream:
        yield cast(BinaryIO, stream)


class Decompressed:
    """The decompressed bytes of a file that holds an archive. Raises :class:`ArchiveError` for other files."""

    def __init__(self, file: BinaryIO) -> None:
        begin = _begin(file)
        self._packed = _Counted(file, begin)
        self._source: Source = self._packed
        if begin.startswith(_ZSTD):
            self._source = _Frame(cast(BinaryIO, self._packed))
        elif not _TAR.startswith(begin) and not begin.startswith(_TAR):
            raise ArchiveError(f"{_NOT_ONE}: it begins neither as zstd does nor with a manifest")

    @property
    def packed_bytes(self) -> int:
        """The bytes of the file that were read."""
        return self._packed.read_bytes

    def read(self, size: int = -1, /) -> bytes:
        """Returns up to ``size`` bytes; none at the end."""
        return self._source.read(size)


def _begin(file: BinaryIO) -> bytes:
    begin = b""
    while len(begin) < len(_TAR) and (part := file.read(len(_TAR) - len(begin))):  # a pipe may have less
        begin += part
    return begin


class _Frame:
    """What zstd compressed."""

    def __init__(self, packed: BinaryIO) -> None:
        import zstandard

        unpacker = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW_BYTES)
        self._stream = unpacker.stream_reader(packed, closefd=False)
        self._error = zstandard.ZstdError
        self._has_begun = False

    def read(self, size: int = -1, /) -> bytes:
        try:
            part = self._stream.read(size)
        except self._error as error:
            raise ArchiveError(f"{error}" if self._has_begun else f"{_NOT_ONE}: {error}") from error
        self._has_begun = True
        return part


class _Counted:
    """A file of which the beginning was read ahead, and how much of it was read."""

    def __init__(self, file: BinaryIO, ahead: bytes) -> None:
        self._file = file
        self.ahead = ahead
        self.read_bytes = len(ahead)

    def read(self, size: int = -1, /) -> bytes:
        if self.ahead:
            taken = len(self.ahead) if size < 0 else size
            part, self.ahead = self.ahead[:taken], self.ahead[taken:]
            return part
        part = self._file.read(size)
        self.read_bytes += len(part)
        return part
