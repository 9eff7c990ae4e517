# SPDX-License-Identifier: Apache-2.0
"""Prefixes: the head of a source, what is in the name of a prefix, and which requests are none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from lockcache.arguments import warn_once
from lockcache.compile_server import Mode, Request, configured_mode, head_of

REQUEST = Request("/lib", "00", ("-arch=sm_90",), "k.cu", "cubin", "#include <a.h>\n", ("/work",), "1:2", (("A", "b"),))


@pytest.mark.parametrize(
    "source, head",
    [
        ("#include <a.h>\nint x;", "#include <a.h>\n"),
        ('// one\n\n#define N 4\n # include "a.h"\n#include <b>\n\n/* x */\nint x;\n#include <c.h>\n',
         '// one\n\n#define N 4\n # include "a.h"\n#include <b>\n'),
        ("#include <a.h>\n#define F(x) x\n#include <b.h>\n", "#include <a.h>\n"),
        ("#include <a.h>\n#define M __COUNTER__\n#include <b.h>\n", ""),
        ("#include <a.h>\n#define M 1 \\\n#include <b.h>\n", "#include <a.h>\n"),
        ("#include <a.h>\n// a line that goes on \\\n#include <b.h>\n", "#include <a.h>\n"),
        ("#include <a.h>\n/*\n#include <b.h>\n*/\n", "#include <a.h>\n"),
        ("#if 1\n#include <a.h>\n#endif\n", ""),
        ("#pragma once\n#include <a.h>\n", ""),
        ("#include MACRO\n", ""),
        ("#include <a.h> int x;\n", ""),
        ("int x;\n#include <a.h>\n", ""),
        ("#include <a.h>", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_head_ends_at_the_last_include_of_the_first_lines(source: str, head: str) -> None:
    assert head_of(source) == head


@given(st.text(alphabet='#includefn <>"./*\\\n_ab1', max_size=200))
def test_a_head_begins_the_source_and_is_its_own_head(source: str) -> None:
    head = head_of(source)
    assert source.startswith(head)
    assert head_of(head) == head


def test_a_prefix_has_all_that_is_in_a_request() -> None:
    others: dict[str, Any] = {
        "library": "/other", "build": "01", "options": (), "name": "x", "target": "ptx", "head": "#include <b.h>\n",
        "directories": ("/other",), "identity": "1:3", "variables": (),
    }  # fmt: skip
    assert set(others) == set(Request._fields)
    names = {REQUEST._replace(**{name: value}).prefix for name, value in others.items()}
    assert len(names | {REQUEST.prefix}) == len(others) + 1


def test_a_request_comes_back_from_its_message() -> None:
    found = {name: list(value) if isinstance(value, tuple) else value for name, value in REQUEST._asdict().items()}
    assert Request.parse(found) == REQUEST


@pytest.mark.parametrize(
    "wrong",
    [{"name": None}, {"options": 5}, {"options": [5]}, {"variables": [["A"]]}, {"target": "exe"}, {"head": "a\0b"},
     {"variables": [["A", 5]]}],
)  # fmt: skip
def test_what_is_no_request_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"request|valid"):
        Request.parse({**REQUEST._asdict(), **wrong})
    for name in Request._fields:
        with pytest.raises(ValueError, match="request"):
            Request.parse({each: value for each, value in REQUEST._asdict().items() if each != name})


def test_a_mistake_in_the_variable_is_off_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    for text, mode in (("", Mode.OFF), ("auto", Mode.AUTO), ("on", Mode.ON), ("off", Mode.OFF), ("always", Mode.OFF)):
        monkeypatch.setenv("LOCKCACHE_COMPILE_SERVER", text)
        assert configured_mode() is mode
    assert "'always' is not auto or on or off" in caplog.text.replace("off or auto or on", "auto or on or off")
