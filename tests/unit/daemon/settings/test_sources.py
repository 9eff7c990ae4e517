# SPDX-License-Identifier: Apache-2.0
"""Where settings come from, which of them counts, and what a mistake in each place looks like."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lockcache_daemon.settings.model import Settings
from lockcache_daemon.settings.sources import SettingsError, Sources
from lockcache_daemon.settings.values import Free


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "lockcache.toml"


def load(config: Path | None, flags: dict[str, object] | None = None, *directories: str, **environ: str) -> Settings:
    return Sources(flags or {}, directories, None if config is None else str(config), environ).load()


def mistakes(config: Path | None, flags: dict[str, object] | None = None, *dirs: str, **environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(config, flags, *dirs, **environ)
    return caught.value.lines


def test_a_flag_counts_over_a_variable_over_a_directorys_table_over_the_file_over_the_default(config: Path) -> None:
    config.write_text(
        'max_size = "1G"\nmax_age = "1d"\nmin_free = "5%"\n'
        '[[directory]]\npath = "/a"\nmax_size = "2G"\nmax_age = "2d"\nfloor = "7B"\n'
        '[[directory]]\npath = "/b"\n'
    )
    a, b = load(config, {"max_size": "4G", "total": "9G"}, LOCKCACHE_MAX_SIZE="3G", LOCKCACHE_MAX_AGE="3d").directories
    day = 86400.0
    assert (a.path, a.max_size, a.max_age, a.min_free, a.floor) == ("/a", 4 * 10**9, 3 * day, Free(share=0.05), 7)
    assert (b.path, b.max_size, b.max_age, b.floor, b.low_watermark) == ("/b", 4 * 10**9, 3 * day, None, 0.9)
    a, b = load(config, {"total": "9G"}).directories
    assert (a.max_size, a.max_age, b.max_size, b.max_age) == (2 * 10**9, 2 * day, 10**9, day)


def test_numbers_and_booleans_of_the_file_mean_what_their_text_means(config: Path) -> None:
    config.write_text('json = true\nmax_size = 10_000_000\nmax_entries = 1_000\n[[directory]]\npath = "/a"\n')
    settings = load(config)
    (directory,) = settings.directories
    assert (settings.as_json, directory.max_size, directory.max_entries) == (True, 10_000_000, 1000)


def test_directories_of_the_command_line_are_kept_instead_of_the_files_with_their_tables(
    config: Path, tmp_path: Path
) -> None:
    config.write_text(
        f'max_size = "1G"\n[[directory]]\npath = "{tmp_path}/a"\nmax_size = "2G"\n'
        f'[[directory]]\npath = "{tmp_path}/b"\n'
    )
    settings = load(config, None, f"{tmp_path}/c", f"{tmp_path}/b/../a")
    assert [(each.path, each.max_size) for each in settings.directories] == [
        (f"{tmp_path}/c", 10**9),
        (f"{tmp_path}/a", 2 * 10**9),
    ]


def test_a_tilde_in_the_file_is_the_home_directory(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    config.write_text('max_size = "1G"\n[[directory]]\npath = "~/kernels"\n')
    assert [each.path for each in load(config).directories] == ["/home/somebody/kernels"]


def test_an_empty_variable_is_none(config: Path) -> None:
    (directory,) = load(None, {"max_size": "1G"}, "/a", LOCKCACHE_MAX_AGE="").directories
    assert directory.max_age is None


@pytest.mark.parametrize(
    "text, line, parts",
    [
        ('max_size = "ten"', 1, ["max_size", "'ten'", "10GiB"]),
        ('# a comment\n\ninterval = 5\nmax_size = "1G"', 3, ["interval", "'5'", "500ms"]),
        ("max_entries = [\n  1,\n]", 1, ["max_entries", "[1] is an array", "text in quotes"]),
        ('max_size = "1G"\nlayout = "zip"', 2, ["layout", "'zip'", "pyptx"]),
        ('max_size = "1G"\nmax_sise = "2G"', 2, ["max_sise", "did you mean max_size?", "max_entries"]),
        ('max_size = "1G"\n[exporter]\nport = 1', 2, ["exporter", "no such setting"]),
        ('max_size = "1G"\n[[directory]]\nmax_age = "1d"', 2, ["path", "missing", "an absolute path"]),
        ('max_size = "1G"\n[[directory]]\npath = "a/b"', 3, ["path", "'a/b'", "an absolute path"]),
        ('max_size = "1G"\n[[directory]]\npath = 7', 3, ["path", "7", "an absolute path"]),
        ('max_size = "1G"\n[[directory]]\npath = "/a"\n\n[[directory]]\npath = "/b/../a"', 6, ["path", "one for each"]),
        (
            '[[directory]]\npath = "/a"\nmax_size = "1G"\n[[directory]]\npath = "/b"\nmax_age = "x"',
            6,
            ["max_age", "'x'"],
        ),
        ('[[directory]]\npath = "/a"\nmax_size = "1G"\nflor = 1', 4, ["flor", "did you mean floor?"]),
        ('[[directory]]\npath = "/a"\nmax_size = "1G"\ninterval = "1s"', 4, ["interval", "no such setting"]),
        ('[directory]\npath = "/a"\nmax_size = "1G"', 1, ["directory", "[[directory]]"]),
        ('max_size = "1G', 1, ["max_size", "TOML"]),
        ('max_size = "1G"\nfloor = = 2', 2, ["column 9", "floor = = 2", "TOML"]),
        ('max_size = "1G"\nmax_size = "2G"', 2, ["max_size", "TOML"]),
        ('[[directory]]\npath = "/a"\n', 2, ["/a", "no budget", "--max-size", "--total"]),
        ('[[directory]]\npath = "/a"\nmax_size = "1G"\nfloor = "1M"', 4, ["floor", "no total", "--total"]),
        (
            'total = "1G"\n[[directory]]\npath = "/a"\nmax_size = "1M"\nfloor = "2M"',
            5,
            ["floor", "max_size", "1000000"],
        ),
        (
            'floor = "6M"\ntotal = "10M"\n[[directory]]\npath = "/a"\n[[directory]]\npath = "/b"',
            2,
            ["total", "12000000"],
        ),
    ],
)
def test_every_mistake_in_the_file_is_one_line_with_file_line_key_value_and_what_is_accepted(
    config: Path, text: str, line: int, parts: list[str]
) -> None:
    config.write_text(text)
    (said,) = mistakes(config)
    assert said.startswith(f"{config}:{line}: ")
    assert all(part in said for part in [*parts, "accepted"] if part != ""), said


LONG = "x" * 5_000


@pytest.mark.parametrize(
    "text",
    [
        f'max_size = "{LONG}"',
        f'max_size = ["{LONG}"]',
        f'{LONG} = "1G"',
        f'directory = "{LONG}"',
        f'[[directory]]\npath = "{LONG}"',
        f'[[directory]]\npath = "/a"\n{LONG} = 1',
        f'max_size = "{LONG}',
        f'[namespaces]\n"{LONG}" = "1G"',
        f'max_size = "1G"\nfloor = "2G"\n[[directory]]\npath = "/{LONG}"\nfloor = "{LONG}"',
    ],
)
def test_whatever_is_long_in_a_file_is_not_repeated_whole(text: str, config: Path) -> None:
    config.write_text(text)
    assert all(len(line) < 1100 and line.startswith(str(config)) for line in mistakes(config))
    assert any("characters left out" in line and "accepted: " in line for line in mistakes(config))


def test_a_mistake_is_one_line_and_no_command_for_a_terminal(config: Path) -> None:
    config.write_text('max_size = "1G"\n"a\\n\\u001b[31m" = 1\n')
    [line] = mistakes(config)
    assert line.startswith(f"{config}:2: a\\n\\x1b[31m: no such setting")


@pytest.mark.parametrize("key", ["max_size", "directory", "alive_file", "namespaces"])
def test_a_number_that_cannot_be_shown_is_a_mistake(key: str, config: Path) -> None:
    config.write_text(f"{key} = 0x{'f' * 5_000}\n")
    [line] = mistakes(config)
    assert line.startswith(f"{config}: ")
    assert line.endswith("accepted: a file of settings in TOML")


def test_all_mistakes_are_named_at_once_and_each_once(config: Path) -> None:
    config.write_text(
        'max_size = "x"\ncolour = 1\n[[directory]]\npath = "/a"\n[[directory]]\npath = "/b"\nfloor = "y"\n'
    )
    said = mistakes(config)
    assert sorted(line.split(": ")[0] for line in said) == [f"{config}:{n}" for n in (1, 2, 7)]


def test_a_mistake_is_one_also_where_something_else_counts_over_it(config: Path) -> None:
    config.write_text('max_size = "x"\n[[directory]]\npath = "/a"\nmax_size = "1G"\nmax_age = "y"\n')
    said = mistakes(config, {"max_size": "1G", "max_age": "1d"}, "/b", LOCKCACHE_MAX_AGE="z")
    assert [line.split(": ")[0] for line in said] == [f"{config}:1", "LOCKCACHE_MAX_AGE", f"{config}:5"]


def test_a_mistake_in_a_variable_or_a_flag_names_it_and_not_the_file(config: Path) -> None:
    config.write_text('max_size = "1G"\n')
    assert mistakes(config, None, "/a", LOCKCACHE_MAX_AGE="soon")[0].startswith("LOCKCACHE_MAX_AGE: 'soon'")
    assert mistakes(config, {"max_age": "soon"}, "/a")[0].startswith("--max-age: 'soon'")
    assert mistakes(None, {"max_size": "1G"}, "")[0].startswith("DIR: ")


@pytest.mark.parametrize(
    "content",
    [
        b"max_size = '\xff'\n",
        b"x" * 2_000_000,
        b"max_size = " + b"[" * 50_000,
        b"max_size = " + b"{a=" * 5_000,
        b"max_size = " + b"9" * 5_000,
    ],
    ids=["no UTF-8", "huge", "deep", "deep tables", "a number of 5,000 digits"],
)
def test_a_file_that_is_no_text_is_one_line(config: Path, content: bytes) -> None:
    config.write_bytes(content)
    (said,) = mistakes(config)
    assert said.startswith(f"{config}:")
    assert "accepted" in said


def test_a_file_that_is_not_there_is_one_line(config: Path) -> None:
    assert "No such file" in mistakes(config)[0]


@pytest.mark.parametrize("kind", ["FIFO", "FIFO with a writer", "device", "socket", "directory"])
def test_what_is_no_regular_file_is_one_line_and_not_waited_for(config: Path, kind: str) -> None:
    with ExitStack() as stack:
        if kind == "directory":
            config.mkdir()
        elif kind == "device":
            config.symlink_to("/dev/zero")
        elif kind == "socket":
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(str(config))
        else:
            os.mkfifo(config)
        if kind == "FIFO with a writer":
            stack.callback(os.close, os.open(config, os.O_RDWR))
        (said,) = mistakes(config)
    assert said.startswith(f"{config}: ")
    assert "accepted: a file of settings" in said


def test_every_setting_is_a_flag_a_variable_and_a_key(config: Path) -> None:
    given: dict[str, Any] = {
        "max_size": "2G",
        "max_entries": "1M",
        "min_free": "5%",
        "max_age": "30d",
        "low_watermark": "80%",
        "floor": "1G",
        "layout": "pyptx",
        "interval": "2s",
        "total": "9G",
        "json": "yes",
    }
    config.write_text("".join(f'{key} = "{value}"\n' for key, value in given.items()))
    by_file = load(config, None, "/a")
    by_flags = load(None, given, "/a")
    by_environ = load(None, None, "/a", **{f"LOCKCACHE_{key.upper()}": value for key, value in given.items()})
    assert by_file == by_flags == by_environ
    assert by_file.directories[0].max_entries == 10**6
