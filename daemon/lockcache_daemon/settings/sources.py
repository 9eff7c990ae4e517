# SPDX-License-Identifier: Apache-2.0
"""Sources of the settings that are in force: flags over variables over the file over defaults.

Keeps one promise: every mistake, wherever it stands, is one line that names the place (a flag, a variable, or file and
line), the key, the value, and what is accepted; and all of them are named at once.

A directory's own table counts over the file's settings for all directories; a flag or a variable counts over both, for
every directory. Directories named on the command line are kept instead of those of the file, with the tables that the
file has for them.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from lockcache.arguments import resolve_path
from lockcache.errors import NoDefaultDirError
from lockcache.sizes import printable
from lockcache_daemon.settings.model import (
    DirectorySettings,
    Settings,
    distinct_paths,
    find_contradictions,
    settings_of,
)
from lockcache_daemon.settings.toml_file import Document, MalformedError

_TABLES: Final = "directory"

_M = TypeVar("_M", DirectorySettings, Settings)


class SettingsError(ValueError):
    """The mistakes in the settings, one line each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = list(dict.fromkeys(map(_bounded, lines)))
        super().__init__("; ".join(self.lines))


# Longer than a line that quotes a usual path or value. It begins with the place, and ends with what is accepted.
_LONGEST: Final = 1000
_HEAD: Final = 400


def _bounded(words: str) -> str:
    """Returns one line, of which the middle is left out if a value in it is long."""
    line = printable(words)
    left_out = len(line) - _LONGEST
    if left_out <= 0:
        return line
    return f"{line[:_HEAD]} ... ({left_out} characters left out) ... {line[left_out + _HEAD :]}"


@dataclass(frozen=True)
class _Given:
    """A value as it was written, and the place where it was written."""

    value: object
    where: str


_Values = dict[str, _Given]


def variable_of(key: str) -> str:
    """Returns the environment variable of a setting."""
    return f"LOCKCACHE_{key.upper()}"


@dataclass(frozen=True)
class Sources:
    """The sources of one daemon's settings. :meth:`load` reads them, again and again if need be."""

    #: By key, for the options that were given.
    flags: Mapping[str, object]
    #: Named on the command line.
    directories: Sequence[str] = ()
    config: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def load(self) -> Settings:
        """Read the settings. Raises :class:`SettingsError`."""
        return _Loading(self).settings()


class _Loading:
    """One reading of all sources; collects the mistakes in them."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._errors: list[str] = []
        self._document = self._read(sources.config)
        self._top = self._file_values((), [*settings_of(Settings), *settings_of(DirectorySettings), _TABLES])
        layers = (self._top, self._from_environ(), self._from_flags())
        for layer in layers:  # each on its own: a mistake is reported also where another layer counts over it
            self._valid(Settings, layer)
            self._valid(DirectorySettings, layer, path="")
        self._above = {**layers[1], **layers[2]}

    def settings(self) -> Settings:
        tables = self._tables()
        directories = [
            self._valid(DirectorySettings, {**self._top, **table, **self._above}, path=path)
            for path, table in self._chosen(tables).items()
        ]
        whole = self._valid(Settings, {**self._top, **self._above})
        if self._errors or whole is None:
            raise SettingsError(self._errors)
        settings = replace(whole, directories=tuple(each for each in directories if each is not None))
        self._contradict(settings, tables)
        return settings

    def _read(self, path: str | None) -> Document | None:
        if path is None:
            return None
        try:
            return Document(path)
        except MalformedError as error:
            raise SettingsError([str(error)]) from error
        except OSError as error:
            raise SettingsError([f"{path}: {error.strerror}; accepted: a file of settings in TOML"]) from error

    def _from_environ(self) -> _Values:
        names = {key: variable_of(key) for key in (*settings_of(Settings), *settings_of(DirectorySettings))}
        environ = self._sources.environ
        return {key: _Given(environ[name], name) for key, name in names.items() if environ.get(name)}

    def _from_flags(self) -> _Values:
        return {key: _Given(value, f"--{key.replace('_', '-')}") for key, value in self._sources.flags.items()}

    def _file_values(self, table: tuple[str | int, ...], accepted: Sequence[str]) -> _Values:
        """Returns the values of one table of the file. Keys that are not ``accepted`` are mistakes."""
        if self._document is None:
            return {}
        found: Any = self._document.data
        for key in table:
            found = found[key]
        values = {}
        for key, value in found.items():
            if key in accepted:
                values[key] = _Given(value, "")
            else:
                self._errors.append(f"{self._document.where(*table, key)}: {key}: {_unknown(key, accepted)}")
        return values

    def _tables(self) -> dict[str, _Values]:
        """Returns the file's settings of single directories, by their paths."""
        given = self._top.get(_TABLES)
        if given is None or self._document is None:
            return {}
        if not isinstance(given.value, list) or not all(isinstance(each, dict) for each in given.value):
            where = self._document.where(_TABLES)
            self._errors.append(
                f"{where}: {_TABLES}: {given.value!r} is not a table; accepted: [[directory]], once for each"
            )
            return {}
        tables: dict[str, _Values] = {}
        for number in range(len(given.value)):
            table = self._file_values((_TABLES, number), ["path", *settings_of(DirectorySettings)])
            table = {key: _Given(each.value, str(number)) for key, each in table.items()}
            path = self._path_of(number, table, tables)
            if path is not None:
                self._valid(DirectorySettings, table, path=path)
                tables[path] = table
        return tables

    def _path_of(self, number: int, table: _Values, others: Mapping[str, _Values]) -> str | None:
        if self._document is None:
            return None
        if "path" not in table:
            where = self._document.where(_TABLES, number)
            self._errors.append(f"{where}: path: missing; accepted: an absolute path, or one that begins with ~")
            return None
        path = table["path"].value
        expanded = os.path.expanduser(path) if isinstance(path, str) else ""
        why = ""
        if not os.path.isabs(expanded) or "\0" in expanded:
            why = f"{path!r} is not a usable path; accepted: an absolute path, or one that begins with ~"
        elif len(distinct_paths([expanded, *others])) <= len(others):
            why = f"{path!r} has a table already; accepted: one for each directory"
        if why:
            self._errors.append(f"{self._document.where(_TABLES, number, 'path')}: path: {why}")
            return None
        return os.path.abspath(expanded)

    def _chosen(self, tables: Mapping[str, _Values]) -> dict[str, _Values]:
        """Returns the directories to keep, with the file's settings of each."""
        try:
            given: list[str | None] = [*self._sources.directories] or ([] if tables else [None])
            named = [resolve_path(directory) for directory in given]
        except (ValueError, NoDefaultDirError) as error:
            raise SettingsError([f"DIR: {error}"]) from error
        if not named:
            return dict(tables)
        by_place = {os.path.realpath(path): table for path, table in tables.items()}
        return {path: by_place.get(os.path.realpath(path), {}) for path in distinct_paths(named)}

    def _valid(self, model: type[_M], values: _Values, **structure: Any) -> _M | None:
        """Returns the settings with these values. Notes every value that is a mistake; ``None`` if there is one."""
        parsed: dict[str, Any] = {}
        before = len(self._errors)
        for key, (name, setting) in settings_of(model).items():
            if key not in values:
                continue
            try:
                parsed[name] = setting.parse(values[key].value)
            except ValueError as error:
                self._errors.append(f"{self._place(key, values[key])}: {error}")
        return model(**structure, **parsed) if len(self._errors) == before else None

    def _place(self, key: str, given: _Given) -> str:
        """Returns words that say where a value was given."""
        if self._document is None or (given.where and not given.where.isdigit()):
            return given.where
        table = (_TABLES, int(given.where)) if given.where else ()
        return f"{self._document.where(*table, key)}: {key}"

    def _contradict(self, settings: Settings, tables: Mapping[str, _Values]) -> None:
        lines = []
        for directory, key, why in find_contradictions(settings):
            table = tables.get(directory.path, {}) if directory is not None else {}
            given = self._above.get(key) or table.get(key) or self._top.get(key)
            lines.append(f"{self._place(key, given)}: {why}" if given is not None else why)
        if lines:
            raise SettingsError(lines)


def _unknown(key: str, accepted: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, accepted, 1)
    meant = f", did you mean {close[0]}?" if close else ""
    return f"no such setting{meant}; accepted: {', '.join(sorted(accepted))}"
