# SPDX-License-Identifier: Apache-2.0
"""Random pairs of links that differ in one thing: whatever gives another output must have another key.

``python -m tests.cuda.link_pairs 300`` prints the table of docs/key-options.md. Each link of a pair goes through
lockcache.cuda.Linker with a cache that both share, and its output is compared with that of cuda.core's own linker.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from cuda.bindings.nvjitlink import nvJitLinkError
from cuda.core import ObjectCode

from lockcache import InMemoryProgramCache
from lockcache.cuda import Linker
from tests.cuda.objects import APART, CHANGED_HELPER, HELPER, KERNEL, LTO, LTO_PTX, link_really, linker_options, unit

#: Every option that nvJitLink sees and that may be changed alone: a value that differs from the default.
OPTIONS: dict[str, Any] = {
    "arch": "sm_100",
    "max_register_count": 24,
    "time": True,
    "verbose": True,
    "optimization_level": 0,
    "debug": True,
    "lineinfo": True,
    "ftz": True,
    "prec_div": False,
    "prec_sqrt": False,
    "fma": False,
    "kernels_used": "k",
    "variables_used": ["unused"],
    "optimize_unused_variables": True,
    "ptxas_options": ["-O1"],
    "split_compile": 2,
    "split_compile_extended": 2,
    "no_cache": True,
}
# No bases of a comparison: two links with the first differ of themselves, and the others fail here with LTO-IR, for
# cuda.core 1.2.2 writes -ftz=true where nvJitLink 13.5 reads -ftz=1; "arch" is the base's.
_NOT_IN_BASES = ("split_compile_extended", "ftz", "prec_div", "prec_sqrt", "fma", "arch")
_MOST_TRIES = 20
_FLAGS_OF_UNITS = ({}, {"lineinfo": True}, {"debug": True})


@dataclass(frozen=True)
class Link:
    """One link: what the linker is given, and where it runs."""

    sources: list[str]
    kind: str
    target: str
    options: dict[str, Any]
    flags: dict[str, Any] = field(default_factory=dict)
    name: str = "a"
    directory: str = "."
    symbols: dict[str, str] = field(default_factory=dict)
    is_file: bool = False

    def objects(self, folder: str) -> list[ObjectCode]:
        found = [unit(source, self.kind, self.name, **self.flags) for source in self.sources]
        make = getattr(ObjectCode, f"from_{self.kind}")
        if self.is_file:
            paths = [os.path.join(folder, f"{self.name}{index}") for index in range(len(found))]
            for path, each in zip(paths, found, strict=True):
                with open(path, "wb") as file:
                    file.write(each.code)
            return [make(path, name=self.name) for path in paths]
        return [make(each.code, name=self.name, symbol_mapping=self.symbols) for each in found]


def _random_link(rng: random.Random) -> Link:
    kind, target, always = rng.choice([("ltoir", "cubin", LTO), ("ltoir", "ptx", LTO_PTX), ("ptx", "cubin", {})])
    sources = [KERNEL, rng.choice([HELPER, CHANGED_HELPER]), *rng.choice([[], [APART]])]
    rng.shuffle(sources)
    chosen = rng.sample([name for name in OPTIONS if name not in _NOT_IN_BASES], rng.randint(0, 3))
    options = {**always, **{name: OPTIONS[name] for name in chosen}}
    return Link(sources, kind, target, options, rng.choice(_FLAGS_OF_UNITS))


def _with_option(name: str) -> Callable[[Link], Link]:
    def changed(link: Link) -> Link:
        options = dict(link.options)
        if options.pop(name, None) is None:
            options[name] = OPTIONS[name]
        return replace(link, options=options)

    return changed


def _swapped(link: Link) -> Link:
    return replace(link, sources=link.sources[::-1])


def _replaced(link: Link) -> Link:
    other = {HELPER: CHANGED_HELPER, CHANGED_HELPER: HELPER}
    return replace(link, sources=[other.get(source, source) for source in link.sources])


def _added(link: Link) -> Link:
    if APART in link.sources:
        return replace(link, sources=[source for source in link.sources if source != APART])
    return replace(link, sources=[*link.sources, APART])


def _retargeted(link: Link) -> Link:
    if link.kind != "ltoir":
        return replace(link, kind="cubin")
    options = {name: value for name, value in link.options.items() if name != "ptx"}
    return (
        replace(link, target="ptx", options={**options, "ptx": True})
        if link.target == "cubin"
        else replace(link, target="cubin", options=options)
    )


CHANGES: dict[str, Callable[[Link], Link]] = {
    "an object": _replaced,
    "one object more": _added,
    "order of objects": _swapped,
    "kind of objects, or target": _retargeted,
    "names of objects": lambda link: replace(link, name="other"),
    "symbol mappings of objects": lambda link: replace(link, symbols={"f<int>": "helper", "g": "k"}),
    "objects as files": lambda link: replace(link, is_file=True),
    "paths of objects": lambda link: replace(link, is_file=True, name="elsewhere"),
    "option name": lambda link: replace(link, options={**link.options, "name": "mine"}),
    "working directory": lambda link: replace(link, directory="/"),
    **{f"option {name}": _with_option(name) for name in OPTIONS},
}


@dataclass
class Findings:
    """Counts by change: pairs, other outputs, other keys; and what is wrong."""

    pairs: Counter[str] = field(default_factory=Counter)
    outputs: Counter[str] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def try_pairs(count: int, seed: int) -> Findings:
    """Try ``count`` pairs, each change in turn. One of which nvJitLink refuses a link is counted, and another tried."""
    rng, found = random.Random(seed), Findings()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            change = list(CHANGES)[number % len(CHANGES)]
            assert any(_try_pair(change, _random_link(rng), found, folder) for _ in range(_MOST_TRIES)), change
    return found


def _try_pair(change: str, one: Link, found: Findings, folder: str) -> bool:
    """Returns whether nvJitLink took both links."""
    if change == "paths of objects":
        one = replace(one, is_file=True)
    cache, outputs = InMemoryProgramCache(), []
    for link in (one, CHANGES[change](one)):
        try:
            with _inside(link.directory):
                real = link_really(link.objects(folder), link.target, **link.options)[0]
                linker = Linker(*link.objects(folder), options=linker_options(**link.options))
                cached = linker.link(link.target, cache=cache).code
        except nvJitLinkError:  # some options exclude each other
            found.refused += 1
            return False
        outputs.append(real)
        # split_compile_extended makes other bytes each time, of which any is right.
        if cached != real and "split_compile_extended" not in link.options:
            found.wrong.append(f"{change}: {link}")
    found.pairs[change] += 1
    found.outputs[change] += outputs[0] != outputs[1]
    found.keys[change] += len(cache) == 2
    return True


@contextlib.contextmanager
def _inside(directory: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def table(found: Findings) -> str:
    lines = ["| changed | pairs | reaches the output | other key |", "|---|---|---|---|"]
    for change in (each for each in CHANGES if found.pairs[each]):
        pairs, outputs = found.pairs[change], found.outputs[change]
        reaches = f"yes, {outputs} of {pairs}" if outputs else "no"
        lines.append(f"| {change} | {pairs} | {reaches} | {found.keys[change]} of {pairs} |")
    return "\n".join(lines)


if __name__ == "__main__":
    result = try_pairs(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    print(table(result))
    print(f"{sum(result.pairs.values())} pairs, {result.refused} refused by nvJitLink, {len(result.wrong)} wrong hits")
    print("\n".join(result.wrong))
    sys.exit(bool(result.wrong))
