"""Judgement: decides which reads and histories are right, by two independent detectors.

``reads`` judges each read by a shared register while the run goes on. Histories record what every process did to every
key, and when, and are judged afterwards: could one register have done it? Layers, lower never import higher:
``operations`` (what can be recorded, and its files), ``linearizability`` (what is legal), ``histories`` (all keys of a
run, and the smallest part of one that is not legal), ``timeline`` (drawing that). Promises that what it calls illegal
is illegal, and says why.

May use: plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.judge.histories import *
    from lockcache_stress.judge.operations import *
    from lockcache_stress.judge.reads import *
    from lockcache_stress.judge.recording import *
    from lockcache_stress.judge.register import *
    from lockcache_stress.judge.removals import *
    from lockcache_stress.judge.tenures import *
    from lockcache_stress.judge.timeline import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "reads": "ByteJudge Judge ProgramJudge SMALLEST_BYTES Verdict is_stamped make_value parse_value "
            "stamp_metadata",
            "histories": "judge_histories Judged",
            "operations": "load_histories",
            "recording": "History",
            "register": "Register Snapshot Stamp attach",
            "removals": "recorded_command",
            "tenures": "Life TenureVerdict judge_tenures",
            "timeline": "as_html as_svg as_text explain",
        },
    )
