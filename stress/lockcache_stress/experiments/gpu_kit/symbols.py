# SPDX-License-Identifier: Apache-2.0
"""Rows ``templates`` and ``lto-ir``: hits with more than the code of one kernel, which are symbols and units to link.

``templates``: first all processes want all templates at once, and each is compiled once. Then no template may be
compiled, and ``get_kernel`` finds every name in the ``ObjectCode`` of a hit, which works only if the symbol mapping
came back with the code. ``lto-ir``: another process links units of LTO-IR from hits to a cubin, and launches it. The
first process also compiles and links each pair without a cache: cubins that the others link from hits must have the
same bytes. The link needs no GPU.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from lockcache_stress.experiments.gpu_kit.member import Member, run_crowd
from lockcache_stress.experiments.gpu_kit.plan import Found, Kit
from lockcache_stress.gpu import (
    Pair,
    Template,
    compile_uncached,
    link_cubin,
    make_pairs,
    make_templates,
    program_options,
)
from lockcache_stress.run import equal, some, zero

_TEMPLATES: Final = 4
_COMPILE, _HIT = 0, 1
_PAIRS: Final = 3
_COMPILE, _HIT = 0, 1


def run_templates(kit: Kit) -> Found:
    """Run the row."""
    crowd = run_crowd(kit, _get_by_name, 2)
    compiles, more = crowd.count("compiles", _COMPILE), crowd.count("compiles", _HIT)
    names, hits = crowd.count("names", _HIT), crowd.count("hits", _HIT)
    lines = [
        equal("compiles", compiles, _TEMPLATES),
        zero("compiles of what was there", more),
        some("hits", hits),
        some("names got from hits", names),
        zero("wrong mappings, bytes or results", crowd.wrong),
    ]
    did = f"{_TEMPLATES} templates, {names:,} kernels got by name from {hits:,} hits"
    return crowd.found("templates", did, lines, compiles + more)


def _get_by_name(member: Member, phase: int) -> None:
    task = member.task
    templates = make_templates(_TEMPLATES, task.seed, task.token)
    goes_on = member.until_time()
    while True:
        for number, template in enumerate(templates):
            _use(member, number, template)
        if phase == _COMPILE or not goes_on():
            return


def _use(member: Member, number: int, template: Template) -> None:
    code = member.compile(template.source, program_options(member.task.arch), names=template.names)
    found = bytes(code.code)
    member.answer.digests[f"template {number}"] = hashlib.blake2b(found).hexdigest()
    for name in template.names:
        mangled = code.symbol_mapping.get(name, b"")
        mangled = mangled.encode() if isinstance(mangled, str) else mangled
        is_there = bool(mangled) and mangled in found
        member.must(is_there, f"template {number}: {name} is {mangled!r}, which is not in the code")
        if is_there:
            member.launch(member.load(code, name), template.expected(name), f"template {number}, {name}")
            member.answer.counts["names"] += 1


def run_linking(kit: Kit) -> Found:
    """Run the row."""
    crowd = run_crowd(kit, _link_all, 2)
    compiles, more = crowd.count("compiles", _COMPILE), crowd.count("compiles", _HIT)
    links = crowd.count("links", _HIT)
    lines = [
        equal("compiles", compiles, 2 * _PAIRS),
        zero("compiles of what was there", more),
        some("linked from hits", links),
        zero("wrong bytes or results", crowd.wrong),
    ]
    did = f"{_PAIRS} pairs of units, linked {links:,} times from hits"
    return crowd.found("lto-ir", did, lines, compiles + more)


def _link_all(member: Member, phase: int) -> None:
    task = member.task
    pairs = make_pairs(_PAIRS, task.seed, task.token)
    options = program_options(task.arch, linked=True)
    if phase == _COMPILE:
        for number, pair in enumerate(pairs):
            if member.index == 0:
                units = [compile_uncached(source, options, "ltoir") for source in pair.sources]
                _note(member, number, link_cubin(units, task.arch))
            for source in pair.sources:
                member.compile(source, options, "ltoir")
        return
    goes_on = member.until_time()
    while True:
        for number, pair in enumerate(pairs):
            _link(member, number, pair, options)
        if not goes_on():
            return


def _link(member: Member, number: int, pair: Pair, options: Any) -> None:
    units = [member.compile(source, options, "ltoir") for source in pair.sources]
    linked = link_cubin(units, member.task.arch)
    member.answer.counts["links"] += 1
    _note(member, number, linked)
    member.launch(member.load(linked), pair.expected(), f"pair {number}")


def _note(member: Member, number: int, linked: Any) -> None:
    member.answer.digests[f"pair {number}"] = hashlib.blake2b(bytes(linked.code)).hexdigest()
