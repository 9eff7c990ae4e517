# SPDX-License-Identifier: Apache-2.0
"""Values of settings: what each kind accepts, and that anything else is named together with what is accepted."""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time, timezone

import pytest

from lockcache_daemon.settings import values
from lockcache_daemon.settings.values import Free, parse_address


@pytest.mark.parametrize(
    "kind, given, value",
    [
        (values.FreeSpace, "5%", Free(share=0.05)),
        (values.FreeSpace, "2G", Free(bytes=2 * 10**9)),
        (values.Rate, "off", 0),
        (values.Rate, 0, 0),
        (values.Rate, "64M", 64 * 10**6),
        (values.Interval, "10ms", 0.01),
        (values.Switch, True, True),
        (values.Switch, "off", False),
        (values.MetricsPath, "/a/../b.prom", "/b.prom"),
        (values.FilePath, "/run//alive", "/run/alive"),
        (values.Namespaces, "triton=2G, jax=500M", (("triton", 2 * 10**9), ("jax", 500 * 10**6))),
        (values.Namespaces, {"triton": "1k"}, (("triton", 1000),)),
    ],
)
def test_a_value_is_what_people_write(kind: values.Parser, given: object, value: object) -> None:
    assert kind(given) == value


@pytest.mark.parametrize(
    "kind, given, said",
    [
        (values.FreeSpace, "5", "'5' has no unit: write 5% or 5G"),
        (values.FreeSpace, "100%", "accepted: a percentage of the file system from 1% to 99%"),
        (values.FreeSpace, "much", "'much' is not an amount of free space"),
        (values.Rate, "fast", "'fast' is not a rate"),
        (values.Interval, "9ms", "'9ms' is out of range"),
        (values.Interval, "2h", "accepted: 10ms to 1h"),
        (values.Switch, "maybe", "'maybe' is neither yes nor no"),
        (values.MetricsPath, "/a/b.txt", "accepted: a path that ends in .prom"),
        (values.MetricsPath, "/a/.prom", "'/a/.prom' would not be read"),
        (values.FilePath, "", "'' is not a file"),
        (values.FilePath, "/a/", "'/a/' is not a file"),
        (values.FilePath, "~nobody-here/a", "there is no user 'nobody-here' with a home directory; accepted: an abs"),
        (values.MetricsPath, "~nobody-here/a.prom", "there is no user 'nobody-here' with a home directory"),
        (values.Namespaces, "triton", "accepted: NAME=SIZE"),
        (values.Namespaces, 7, "7 are not sizes of namespaces"),
        (values.Namespaces, "a b=1G", "'a b' is not the name of a namespace"),
        (values.Namespaces, "a=1G,a=2G", "the namespace 'a' has two sizes"),
        (values.Choice("lru", "cost"), "fifo", "'fifo' is not known; accepted: lru, cost"),
    ],
)
def test_anything_else_is_named_with_what_is_accepted(kind: values.Parser, given: object, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        kind(given)


#: What TOML has besides text, by the words for it.
OTHERS = {
    "an array": [["/a.prom"], [], [1]],
    "a table": [{"a": "1G"}, {}],
    "a date or time": [datetime(2026, 1, 1, 7, 32, tzinfo=timezone.utc), date(2026, 1, 1), time(7, 32)],
    "true or false": [True, False],
    "a whole number": [0, 1, 10_000_000],
    "a number": [1.0, 10_000_000.0, math.nan, math.inf],
}
#: Every kind, with the values that are meant where they are not text.
KINDS: dict[str, tuple[values.Parser, list[object]]] = {
    "FilePath": (values.FilePath, []),
    "MetricsPath": (values.MetricsPath, []),
    "MetricsAddress": (values.MetricsAddress, [0, 1]),
    "Group": (values.Group, [True, False, 0, 1, 10_000_000]),
    "Switch": (values.Switch, [True, False, 0, 1]),
    "Size": (values.Size, [10_000_000, 10_000_000.0]),
    "FreeSpace": (values.FreeSpace, [10_000_000, 10_000_000.0]),
    "Rate": (values.Rate, [0, 10_000_000, 10_000_000.0]),
    "Count": (values.Count, [1, 10_000_000, 1.0, 10_000_000.0]),
    "Share": (values.Share, []),
    "Age": (values.Age, []),
    "Interval": (values.Interval, []),
    "Choice": (values.Choice("lru", "cost"), []),
    "size of a namespace": (lambda value: values.Namespaces({"triton": value}), [10_000_000, 10_000_000.0]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", OTHERS)
def test_a_value_of_another_type_is_what_is_meant_or_a_mistake(kind: str, what: str) -> None:
    parse, meant = KINDS[kind]
    for given in OTHERS[what]:
        if any(given == each and type(given) is type(each) for each in meant):
            parse(given)
            continue
        with pytest.raises(ValueError, match=r"accepted: |write 1|no group") as caught:
            parse(given)
        if what in ("an array", "a table", "a date or time") or kind.endswith("Path"):
            assert f" is {what}; accepted: text in quotes" in str(caught.value)


@pytest.mark.parametrize("given", [["triton=1G"], True, 1, 1.0, date(2026, 1, 1)])
def test_sizes_of_namespaces_are_a_table_or_text(given: object) -> None:
    with pytest.raises(ValueError, match="are not sizes of namespaces; accepted: NAME=SIZE"):
        values.Namespaces(given)


@pytest.mark.parametrize("text", ["", "host", "host:", "::1:9477", "1.2.3.4:65536", "a b:1", "http://a:1", "[a:1"])
def test_what_is_not_an_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="accepted: PORT, HOST:PORT") as error:
        parse_address(text)
    assert repr(text) in str(error.value)
