# SPDX-License-Identifier: Apache-2.0
"""Several files as one entry: their bytes one after the other, and in the metadata which bytes are whose.

Keeps invariant 1 (a hit is whole) for a group: all files of one writer, or none. What the metadata says of names and
lengths is checked before it is believed: a directory is input that others may have written, and names become paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: The metadata that says which files an entry is made of: a list of (name, bytes).
FILES: Final = "files"

_MOST_FILES: Final = 10_000
_LONGEST_NAME: Final = 255  # bytes, as file systems have it


def joined_files(files: object, metadata: object) -> tuple[bytes, dict[str, Any]]:
    """Returns the code and the metadata of the entry that these files are.

    Raises :class:`TypeError` or :class:`ValueError` that names what is wrong.
    """
    if not isinstance(files, Mapping):
        raise TypeError(f"files must be a mapping of names to bytes, got {type(files).__name__} {files!r:.80}")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a mapping, got {type(metadata).__name__} {metadata!r:.80}")
    if not 0 < len(files) <= _MOST_FILES:
        raise ValueError(f"files must be 1 to {_MOST_FILES:,}, got {len(files):,}")
    if metadata and FILES in metadata:
        raise ValueError(f"metadata must not have {FILES!r}: it says which files there are")
    parts = []
    for name, content in files.items():
        if not isinstance(name, str):
            raise TypeError(f"names of files must be str, got {type(name).__name__} {name!r:.80}")
        if not _is_name(name):
            raise ValueError(f"files[{name!r:.80}] must be named as one file in a folder is, without a slash")
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise TypeError(f"files[{name!r}] must be bytes, got {type(content).__name__} {content!r:.80}")
        parts.append((name, bytes(content)))
    listed = [(name, len(content)) for name, content in parts]
    return b"".join(content for _, content in parts), {**(metadata or {}), FILES: listed}


def parted_files(code: bytes, metadata: Mapping[str, Any]) -> dict[str, bytes] | None:
    """Returns the files that an entry is made of; ``None`` for any other entry, and for impossible names or lengths."""
    listed = metadata.get(FILES)
    if not isinstance(listed, list) or not 0 < len(listed) <= _MOST_FILES:
        return None
    files: dict[str, bytes] = {}
    begin = 0
    for each in listed:
        if not (isinstance(each, tuple) and len(each) == 2):
            return None
        name, size = each
        if not (isinstance(name, str) and _is_name(name) and type(size) is int and 0 <= size <= len(code) - begin):
            return None
        files[name] = code[begin : begin + size]
        begin += size
    return files if begin == len(code) and len(files) == len(listed) else None


def _is_name(name: str) -> bool:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return False
    return 0 < len(encoded) <= _LONGEST_NAME and name not in (".", "..") and not {"/", "\0"} & set(name)
