"""Values of settings: what each kind accepts, and that anything else is named together with what is accepted."""

from __future__ import annotations

import re

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


@pytest.mark.parametrize("text", ["", "host", "host:", "::1:9477", "1.2.3.4:65536", "a b:1", "http://a:1", "[a:1"])
def test_what_is_not_an_address_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="accepted: PORT, HOST:PORT") as error:
        parse_address(text)
    assert repr(text) in str(error.value)
