"""Row ``templates``: instances of templates are got by name from a hit, and launched.

First all processes want all templates at once, and each is compiled once. Then nothing may be compiled, and every name
is asked of a hit's ``ObjectCode`` by ``get_kernel``, which works only if the symbol mapping came back with the code.
"""

from __future__ import annotations

import hashlib
from typing import Final

from lockcache_stress.experiments.gpu_kit.crowd import run_crowd
from lockcache_stress.experiments.gpu_kit.member import Member
from lockcache_stress.experiments.gpu_kit.plan import Found, Kit
from lockcache_stress.gpu import Template, make_templates, program_options
from lockcache_stress.run import equal, some, zero

__all__ = ["run_templates"]

_TEMPLATES: Final = 4
_COMPILE, _HIT = 0, 1


def run_templates(kit: Kit) -> Found:
    """Runs the row."""
    crowd = run_crowd(kit, _work, 2)
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


def _work(member: Member, phase: int) -> None:
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
