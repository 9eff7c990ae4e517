# SPDX-License-Identifier: Apache-2.0
"""Statements of programs about keys: what a key was made of, found again by the key when something is stored under it.

``make_program_cache_key`` returns plain bytes, which go through ``cuda.core`` and any program's hands before they reach
a cache. So the parts wait here, in this process, under the key: those of the last few hundred keys. For a key that is
remembered already this costs 0.2 us, and no part is computed before something is stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from lockcache import metadata
from lockcache.explain.key_parts import Part, bounded, decode_label, looks_secret, make_part
from lockcache.explain.secret_forms import holds_secret

_T = TypeVar("_T")

# Sized for the kernels of one job; a few KB each at most.
_MOST: Final = 512
# Of a key that is text, as it is shown.
_LONGEST_KEY: Final = 60


class _Recent(dict[bytes, _T]):
    """The last values, by key: :data:`_MOST` at most. Safe for threads, without a lock; each put asks it once."""

    def put(self, key: bytes, value: _T) -> None:
        """Remember a value, for longer than all that were remembered before."""
        self.pop(key, None)
        self[key] = value
        # Where another thread remembers or forgets one meanwhile, the next call goes on.
        with contextlib.suppress(RuntimeError, StopIteration):
            while len(self) > _MOST:
                self.pop(next(iter(self)), None)


class Stated:
    """A program's statement about one key."""

    __slots__ = ("_label", "_parts", "_work_out")

    def __init__(self, work_out: Callable[[], Iterable[Part]], label: Callable[[], str]) -> None:
        """``work_out`` gives the parts, ``label`` a name for people; each is called once, if at all."""
        self._work_out = work_out
        self._label = label
        self._parts: list[Part] | None = None

    @property
    def parts(self) -> list[Part]:
        """The parts, bounded."""
        if self._parts is None:
            self._parts = bounded(self._work_out())
        return self._parts

    @property
    def label(self) -> str:
        """A name for people; empty where there is none, or it has the form of a secret."""
        label: object = self._label()
        return "" if isinstance(label, str) and holds_secret(label) else decode_label(label)

    def labelled(self, label: str) -> Stated:
        """Returns the same with the label of a caller, if there is one."""
        return Stated(lambda: self.parts, lambda: label) if label else self

    def note(self) -> bytes:
        """Returns label and parts as an entry keeps them: fields next to no metadata (:mod:`lockcache.metadata`)."""
        return metadata.add_fields(b"", label=self.label, parts=self.parts)


_stated: _Recent[Stated] = _Recent()
#: Returns what this process stated about a key, or ``None``: for each put.
known_statement: Final = _stated.get
_digested: _Recent[tuple[Part, ...]] = _Recent()


def remember(key: bytes, statement: Stated) -> None:
    """Remember what was stated about a key, for :func:`statement_of`."""
    _stated.put(key, statement)


def state(key: bytes, parts: Mapping[str, object], label: str = "") -> None:
    """State what a key was made of, by names: for adapters and programs that make their keys themselves.

    Values are shown as :func:`str` gives them, if they may be shown, and compared as :func:`repr` does. The most
    important part comes first, and all keys have their parts in one order, since that shows which had no room.
    """
    made = [make_part(name, repr(value).encode(errors="surrogateescape"), str(value)) for name, value in parts.items()]
    remember(key, Stated(lambda: made, lambda: label))


class Hashed:
    """A value of a part of which only the hash is kept, with other words that are shown, or none."""

    __slots__ = ("_content", "_shown")

    def __init__(self, content: object, shown: str = "") -> None:
        self._content, self._shown = content, shown

    def __repr__(self) -> str:
        return repr(self._content)

    def __str__(self) -> str:
        return self._shown


class Label(str):
    """The name of a program for people, with the parts of its key, which are worked out at a miss, and never at a hit.

    It goes where a label goes: what looks a key up and finds nothing asks :func:`statement_of` with it.
    """

    __slots__ = ("work_out",)

    #: Returns the parts by name, as :func:`state` takes them. Raises nothing.
    work_out: Callable[[], Mapping[str, object]]

    @classmethod
    def of(cls, text: str, work_out: Callable[[], Mapping[str, object]]) -> Label:
        """Returns ``text`` as the label of a key whose parts ``work_out`` gives."""
        made = cls(text)
        made.work_out = work_out
        return made


def is_remembered(key: bytes) -> bool:
    """Returns whether a statement about a key is remembered, and remembers it for longer."""
    found = _stated.get(key)
    if found is not None:
        _stated.put(key, found)
    return found is not None


def statement_of(key: bytes, label: str = "") -> Stated | None:
    """Returns what this process stated about a key, with ``label`` if that is given; ``None`` for nothing at all.

    A :class:`Label` states the parts of a key of which nothing was stated.
    """
    found = _stated.get(key)
    if found is None and isinstance(label, Label):
        state(key, label.work_out(), str(label))
        found = _stated.get(key)
    if found is None:
        return Stated(tuple, lambda: label) if label else None
    return found.labelled(label)


def key_in_words(key: bytes | str) -> str:
    """Returns a key that is text, for people; nothing for a digest."""
    text = key if isinstance(key, str) else bytes(key).decode("ascii", "replace")
    is_text = text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text
    # Others read it: in the lease file, and in the log of those who wait.
    return text[:_LONGEST_KEY] if is_text and not (looks_secret(text) or holds_secret(text)) else ""


def remember_digest(digest: bytes, parts: tuple[Part, ...]) -> None:
    """Remember what a digest was made of, which may be the ``extra_digest`` of a key."""
    _digested.put(digest, parts)


def parts_of_digest(digest: bytes) -> tuple[Part, ...]:
    """Returns what this process remembers of a digest; nothing where that is nothing."""
    return _digested.get(digest) or ()
