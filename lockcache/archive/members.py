"""Members of an archive: each one written and read.

An archive is a tar, usually in a zstd frame with a checksum: first the manifest, then the entries, the least recently
used first, so that a small cap drops the oldest ones. Each entry is a file under its own name in ``entries/``; its
record and its last use stand in its PAX header, where other tools have attributes and times too.

Keeps the promise that nothing in an archive is trusted. An archive may come from anywhere, so :class:`Members`
understands plain files under entry names and nothing else of tar: no links, devices, long names, sparse files, or sizes
that a second header states. What it reads into memory is bounded before it is read. Not promised: protection against an
attacker who makes matching digests; signatures are for that.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from lockcache import __version__
from lockcache.errors import ArchiveError
from lockcache.filestream.disk import parse_json
from lockcache.filestream.entry import XATTR, Record

#: The version of the archive, not of the directory; a larger one is from a newer lockcache.
ARCHIVE_FORMAT: Final = 1

_BLOCK: Final = tarfile.BLOCKSIZE
#: The name of the first member.
MANIFEST: Final = "lockcache-pack.json"
_RECORD: Final = f"SCHILY.xattr.{XATTR}"
_ENTRY: Final = re.compile(r"entries/([0-9a-f]{2})/([0-9a-f]{62})", re.ASCII)
_SECONDS: Final = re.compile(rb"([0-9]{1,10})(?:\.([0-9]{1,9}))?")

# A manifest is some hundred bytes, more where there are many compilers.
_LARGEST_MANIFEST_BYTES: Final = 1 << 20
# A record is 44 bytes and what users added: some have compiler logs there. As much as is read of a record file.
_LARGEST_HEADER_BYTES: Final = 16 << 20
# An archive of lockcache's has two records, GNU tar's a dozen. Millions of them in one header would be a way to fill
# memory.
_MOST_RECORDS: Final = 64
# Bytes that are read at once and dropped, to skip the rest of a payload.
_CHUNK_BYTES: Final = 1 << 20

_KINDS: Final = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symlink",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.DIRTYPE: "a directory",
    tarfile.FIFOTYPE: "a FIFO",
}
# Second headers that state where a member is, or how long: some readers believe them, and others do not.
_RESTATED: Final = (b"path", b"linkpath", b"size", b"GNU.sparse")


class Source(Protocol):
    """Decompressed bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Returns up to ``size`` bytes; none at the end."""


@dataclass(frozen=True)
class Manifest:
    """The statements of an archive about itself, in its first member."""

    entries: int
    #: The bytes of payloads.
    bytes: int
    format: int = ARCHIVE_FORMAT
    made_by: str = f"lockcache {__version__}"
    #: The number of entries of each kind, as far as their metadata state it.
    kinds: dict[str, int] = field(default_factory=dict)
    arches: dict[str, int] = field(default_factory=dict)
    compilers: dict[str, int] = field(default_factory=dict)


class Member(NamedTuple):
    """One member's header. ``payload()`` of the reader gives its bytes."""

    #: The entry's name, 64 hex digits; for a member with a problem, what the archive calls it.
    name: str
    size_bytes: int
    last_use_ns: int
    #: Empty if it has none.
    record: bytes
    #: Why this is not an entry, or ``None``.
    problem: str | None


def manifest_member(manifest: Manifest) -> bytes:
    """Returns the first member, with its header."""
    body = json.dumps(asdict(manifest), indent=1, sort_keys=True).encode() + b"\n"
    return _header(MANIFEST, len(body), 0, {}) + body + padding(len(body))


def entry_header(name: str, size_bytes: int, last_use_ns: int, record: bytes) -> bytes:
    """Returns the tar header that precedes a payload."""
    seconds, ns = divmod(max(0, last_use_ns), 10**9)
    stated = {"mtime": f"{seconds}.{ns:09d}"}
    if record:
        stated[_RECORD] = record.decode("utf-8", "surrogateescape")
    return _header(f"entries/{name[:2]}/{name[2:]}", size_bytes, seconds, stated)


def possible(record: Record) -> Record:
    """Returns the record with 0, unknown, for a time before 1970 (a host without a clock) or a cost below nothing.

    On both ways: programs serve such an entry, so it is worth shipping, and nobody is to compute with what it states.
    """
    return record._replace(created_ns=max(0, record.created_ns), cost_ns=max(0, record.cost_ns))


def padding(size_bytes: int) -> bytes:
    """Returns the zeros that pad a payload to whole blocks."""
    return bytes(-size_bytes % _BLOCK)


def end_of_archive() -> bytes:
    """Returns the blocks that end an archive; one that lacks them was cut off."""
    return bytes(2 * _BLOCK)


def _header(name: str, size_bytes: int, seconds: int, stated: dict[str, str]) -> bytes:
    # Owner, group and mode say nothing of an entry: the same content makes the same archive for every user who packs
    # it.
    header = tarfile.TarInfo(name)
    header.size, header.mtime, header.mode, header.pax_headers = size_bytes, seconds, 0o600, stated
    return header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


class Members:
    """Reads the members of an archive, one after the other. Raises :class:`ArchiveError` for what is not an archive."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left_bytes = self._padding_bytes = 0
        self.manifest = self._read_manifest()

    def __iter__(self) -> Iterator[Member]:
        """Yields every further member; skips what was not read of a payload."""
        left_entries, left_bytes = self.manifest.entries, self.manifest.bytes
        while (member := self._next()) is not None:
            left_entries -= 1
            left_bytes -= member.size_bytes
            # Bounds the work of a small file that decompresses to long runs of zeros, by the sizes that its manifest
            # states.
            if left_entries < 0 or left_bytes < 0:
                raise ArchiveError("this archive holds more than its manifest says")
            yield member
        self._read_to_end()

    def payload(self) -> bytes:
        """Returns the payload of the last member. Requires: it fits into memory."""
        size, self._left_bytes = self._left_bytes, 0
        return self._read_exactly(size)

    def _read_manifest(self) -> Manifest:
        header = self._header()
        if header is None or header.name != MANIFEST or header.type != tarfile.REGTYPE:
            raise ArchiveError("this is not an archive of `lockcache pack`: it does not begin with a manifest")
        if not 0 <= header.size <= _LARGEST_MANIFEST_BYTES:
            raise ArchiveError(f"the manifest is {header.size} bytes long, which none is")
        self._begin(header.size)
        return _parse_manifest(self.payload())

    def _next(self) -> Member | None:
        self._pass_over()
        header = self._header()
        if header is None:
            return None
        stated: dict[bytes, bytes] = {}
        problem = None
        if header.type == tarfile.XHDTYPE:
            if header.size < 0:
                raise ArchiveError(f"a header of {header.size} bytes")
            self._begin(header.size)
            if header.size <= _LARGEST_HEADER_BYTES:
                stated = _parse_stated(self.payload())
            else:
                problem = f"its record takes {header.size} bytes; accepted: {_LARGEST_HEADER_BYTES}"
            header = self._header()
            if header is None:
                raise ArchiveError("this archive ends in the middle of a member")
        if header.size < 0:
            raise ArchiveError(f"{header.name!r} states a size of {header.size} bytes")
        has_data = header.type not in _KINDS
        self._begin(header.size if has_data else 0)
        return _member(header, stated, header.size if has_data else 0, problem)

    def _header(self) -> tarfile.TarInfo | None:
        self._pass_over()
        block = self._read_exactly(_BLOCK)
        try:
            return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            if block == bytes(_BLOCK):
                return None
            raise ArchiveError(f"this archive is damaged: {error}") from error

    def _begin(self, size_bytes: int) -> None:
        self._left_bytes, self._padding_bytes = size_bytes, -size_bytes % _BLOCK

    def _pass_over(self) -> None:
        left = self._left_bytes + self._padding_bytes
        self._left_bytes = self._padding_bytes = 0
        while left:
            left -= len(self._read_exactly(min(left, _CHUNK_BYTES)))

    def _read_exactly(self, size_bytes: int) -> bytes:
        parts = []
        missing = size_bytes
        while missing:
            # All at once into one buffer: joining pieces would need the memory twice.
            part = self._source.read(missing)
            if not part:
                raise ArchiveError("this archive ends in the middle: it was cut off")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _read_to_end(self) -> None:
        # The frame's checksum is looked at when its end is reached. Tar pads to 10 KiB.
        left = 20 * _BLOCK
        while left > 0 and (part := self._source.read(left)):
            left -= len(part)


def _parse_manifest(body: bytes) -> Manifest:
    try:
        found = parse_json(body)
        version = found["format"]
        if isinstance(version, int) and version > ARCHIVE_FORMAT:
            raise ArchiveError(
                f"this archive has format {version} ({found.get('made_by')!r}), this lockcache reads up to "
                f"{ARCHIVE_FORMAT}: upgrade lockcache"
            )
        sums = [_natural(found[name]) for name in ("format", "entries", "bytes")]
        counts = [_counts(found.get(name, {})) for name in ("kinds", "arches", "compilers")]
        return Manifest(sums[1], sums[2], sums[0], str(found["made_by"]), *counts)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, ArchiveError):
            raise
        raise ArchiveError(f"the manifest cannot be understood ({error!r})") from None


def _natural(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is not a count")
    return value


def _counts(value: Any) -> dict[str, int]:
    return {str(name): _natural(count) for name, count in value.items()}


def _parse_stated(body: bytes) -> dict[bytes, bytes]:
    """Returns the records of a PAX header: each ``LENGTH NAME=VALUE\\n``, its length with all of that."""
    stated: dict[bytes, bytes] = {}
    start = 0
    while start < len(body):
        length, space, _ = body[start : start + 10].partition(b" ")
        end = start + int(length) if length.isdigit() else 0
        named = start + len(length) + 1
        equals = body.find(b"=", named, max(0, end - 1))
        is_whole = space and equals >= 0 and start < end <= len(body) and body[end - 1 : end] == b"\n"
        if not is_whole or len(stated) == _MOST_RECORDS:
            raise ArchiveError("this archive is damaged: a member's header cannot be understood")
        stated[body[named:equals]] = body[equals + 1 : end - 1]
        start = end
    return stated


def _member(header: tarfile.TarInfo, stated: dict[bytes, bytes], size_bytes: int, problem: str | None) -> Member:
    record = stated.get(_RECORD.encode(), b"")
    match = _ENTRY.fullmatch(header.name)
    problem = problem or _problem(header, stated)
    if match is None or problem is not None:
        return Member(header.name, size_bytes, 0, b"", problem or "not under the name of an entry")
    return Member(match[1] + match[2], size_bytes, _last_use_ns(header, stated), record, None)


def _problem(header: tarfile.TarInfo, stated: dict[bytes, bytes]) -> str | None:
    if header.type in _KINDS:
        return f"{_KINDS[header.type]}, not a file"
    if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        return f"of a type ({header.type!r}) that entries do not have"
    if any(name.startswith(_RESTATED) for name in stated):
        return "with a second header that states its name or size again"
    return None


def _last_use_ns(header: tarfile.TarInfo, stated: dict[bytes, bytes]) -> int:
    match = _SECONDS.fullmatch(stated.get(b"mtime", b""))
    if match is None:
        return max(0, int(header.mtime)) * 10**9
    return int(match[1]) * 10**9 + int((match[2] or b"0").ljust(9, b"0"))
