# SPDX-License-Identifier: Apache-2.0
"""Memoized functions: a name has to lead to its function, and callables that would share a key are refused."""

from __future__ import annotations

import base64
import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import InMemoryProgramCache

cache = InMemoryProgramCache()


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def adding(text: bytes) -> Callable[[Callable[..., bytes]], Callable[..., bytes]]:
    """Returns a decorator whose functions all have the name of the function that they wrap."""

    def decorate(function: Callable[..., bytes]) -> Callable[..., bytes]:
        @functools.wraps(function)
        def call(*args: Any) -> bytes:
            return function(*args) + text

        return call

    return decorate


def plain(number: int) -> bytes:
    return b"plain %d" % number


def tagged_later(number: int) -> bytes:
    return b"plain %d" % number


class Compiler:
    word = b"compiler"

    def __init__(self, word: bytes) -> None:
        self.word = word

    def compile(self, number: int) -> bytes:
        return b"%s %d" % (self.word, number)

    @classmethod
    def of_class(cls, number: int) -> bytes:
        return b"%s %d" % (cls.word, number)

    @staticmethod
    def static(number: int) -> bytes:
        return b"static %d" % number

    def __call__(self, number: int) -> bytes:
        return self.compile(number)


class Inherited(Compiler):
    word = b"inherited"


class Words(bytes):
    def __new__(cls, number: int) -> Words:
        return super().__new__(cls, b"words %d" % number)


class Bytes(bytes):
    """Has methods of C that are bound to an object."""


def replaced(number: int) -> bytes:
    return b"first %d" % number


first_replaced = replaced


def replaced(number: int) -> bytes:  # type: ignore[no-redef]
    return b"second %d" % number


@cache.memoize
def decorated_again(number: int) -> bytes:
    return b"first %d" % number


first_decorated_again = decorated_again


@cache.memoize
def decorated_again(number: int) -> bytes:
    return b"second %d" % number


@adding(b" outside")
@cache.memoize
def wrapped_outside(number: int) -> bytes:
    return b"%d" % number


@cache.memoize
@adding(b" inside")
def wrapped_inside(number: int) -> bytes:
    return b"%d" % number


@functools.lru_cache
@cache.memoize
def remembered(number: int) -> bytes:
    return b"remembered %d" % number


class Outer:
    class Inner:
        @staticmethod
        @cache.memoize
        def nested(number: int) -> bytes:
            return b"nested %d" % number

    @staticmethod
    @cache.memoize
    def __private(number: int) -> bytes:
        return b"private %d" % number

    private = __private

    @cache.memoize(key=lambda self, number: f"{self.word} {number}")
    def method(self, number: int) -> bytes:
        return b"%s %d" % (self.word, number)

    @classmethod
    @cache.memoize(key=lambda cls, number: f"{cls.word} {number}")
    def of_class(cls, number: int) -> bytes:
        return b"%s %d" % (cls.word, number)

    @property
    @cache.memoize(key=lambda self: f"{self.word}")
    def code(self) -> bytes:
        return self.word

    @functools.cached_property
    @cache.memoize(key=lambda self: f"{self.word}")
    def kept_code(self) -> bytes:
        return self.word

    word = b"outer"


class Below(Outer):
    word = b"below"


REFUSED = {
    "bound method": (Compiler(b"one").compile, Compiler(b"two").compile),
    "class method": (Compiler.of_class, Inherited.of_class),
    "callable object": (Compiler(b"one"), Compiler(b"two")),
    "partial": (functools.partial(plain, 1), functools.partial(plain, 2)),
    "named partial": tuple(functools.update_wrapper(functools.partial(plain, number), plain) for number in (1, 2)),
    "wraps": (adding(b" one")(plain), adding(b" two")(plain)),
    "wraps of a method": (adding(b" one")(Compiler.static), adding(b" two")(Compiler.static)),
    "method of an object of C": (b"one".join, b"two".join),
    "method of a subclass of one of C": (Bytes(b"one").center, Bytes(b"two").center),
    "class method of C": (bytes.fromhex, Bytes.fromhex),
    "method of C": (bytes.center, str.center),
}


def called(function: Callable[..., Any]) -> bytes:
    """Returns the result of a call that suits the kind."""
    name = getattr(function, "__name__", "")
    arguments = {"join": ([b"a", b"b"],), "fromhex": ("61",), "center": (9,)}
    if function in REFUSED["method of C"]:
        return bytes(str(function("x" if function is str.center else b"x", 9)), "ascii")
    partial = isinstance(function, functools.partial)
    return function(*(() if partial else arguments.get(name, (10,))))


@pytest.mark.parametrize("kind", REFUSED)
def test_a_callable_whose_name_does_not_tell_it_from_others_is_refused_and_the_message_helps(kind: str) -> None:
    one, two = REFUSED[kind]
    for function in (one, two):
        with pytest.raises((TypeError, ValueError), match=r"memoize.*cache\.get_or_compute\(key, compute\)"):
            called(cache.memoize(function))
    assert len(cache) == 0
    for function in (one, two):  # as the message says
        found = cache.get_or_compute(f"{function!r} 10", functools.partial(called, function))
        assert found == called(function)


@pytest.mark.parametrize(
    "function", [first_replaced, first_decorated_again], ids=["memoized by a call", "memoized by a decorator"]
)
def test_a_function_whose_name_leads_to_a_later_one_is_refused_at_its_first_call(function: Any) -> None:
    memoized = cache.memoize(function) if function is first_replaced else function
    with pytest.raises(ValueError, match=r"module \S+test_memoize has another .*function of this name"):
        memoized(1)
    later = cache.memoize(replaced) if function is first_replaced else decorated_again
    assert later(1) == b"second 1"


def test_of_a_function_and_one_that_takes_its_name_only_the_one_that_has_it_is_memoized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memoized = cache.memoize(tagged_later)
    tagged = adding(b" tagged")(tagged_later)
    monkeypatch.setattr(sys.modules[__name__], "tagged_later", tagged)
    with pytest.raises(ValueError, match=r"tagged_later cannot be memoized.*rename one"):
        memoized(1)
    assert cache.memoize(tagged)(1) == b"plain 1 tagged"


@pytest.mark.parametrize(
    "call, expected",
    [
        (lambda: cache.memoize(plain)(1), b"plain 1"),
        (lambda: cache.memoize(Compiler.static)(1), b"static 1"),
        (lambda: cache.memoize(vars(Compiler)["static"])(1), b"static 1"),
        (lambda: cache.memoize(Words)(1), b"words 1"),
        (lambda: cache.memoize(base64.b64decode)("YQ=="), b"a"),
        (lambda: wrapped_outside(1), b"1 outside"),
        (lambda: wrapped_inside(1), b"1 inside"),
        (lambda: remembered(1), b"remembered 1"),
        (lambda: Outer.Inner.nested(1), b"nested 1"),
        (lambda: Outer.private(1), b"private 1"),
        (lambda: Outer().method(1), b"outer 1"),
        (lambda: Below().method(1), b"below 1"),
        (lambda: Outer.of_class(1), b"outer 1"),
        (lambda: Below().of_class(1), b"below 1"),
        (lambda: Below().code, b"below"),
        (lambda: Below().kept_code, b"below"),
    ],
    ids=[
        "function",
        "static method",
        "static method as stored",
        "class",
        "function of another module",
        "below another decorator",
        "above another decorator",
        "below lru_cache",
        "nested class",
        "private name of a class",
        "method with a key",
        "inherited method with a key",
        "class method with a key",
        "inherited class method with a key",
        "property",
        "cached property",
    ],
)
def test_a_function_that_its_name_leads_to_is_memoized(call: Callable[[], bytes], expected: bytes) -> None:
    remembered.cache_clear()
    assert call() == expected
    assert len(cache) == 1
    hits = cache.stats().hits
    remembered.cache_clear()
    assert call() == expected
    assert (len(cache), cache.stats().hits) == (1, hits + 1)


SCRIPT = """
import multiprocessing, sys
from lockcache import FileStreamProgramCache
cache = FileStreamProgramCache(sys.argv[1])
@cache.memoize
def build() -> bytes: return b"NAME"
def work(path, pipe): pipe.send((build.__module__, build(), cache.stats().hits))
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe()
    process = context.Process(target=work, args=(sys.argv[1], sender))
    process.start()
    print(*receiver.recv(), build() == b"NAME", cache.stats().hits)
    process.join()
"""


@pytest.mark.slow
def test_spawned_processes_of_two_scripts_share_nothing_and_those_of_one_share_with_it(tmp_path: Path) -> None:
    def run(name: str) -> str:
        script = tmp_path / f"{name}.py"
        script.write_text(SCRIPT.replace("NAME", name))
        command = [sys.executable, script, tmp_path / "cache"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert run("one") == "__mp_main__ b'one' 0 True 1"
    assert run("two") == "__mp_main__ b'two' 0 True 1"
    assert run("one") == "__mp_main__ b'one' 1 True 1"
