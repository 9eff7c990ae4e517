"""Judgement: decides which reads and histories are right, by two independent detectors.

``reads`` judges each read by a shared register while the run goes on. Histories record the operations of every process
on every key, with their times, and are judged after the run: could one register have had this history? The layers, of
which a lower one never imports a higher one: ``operations`` (records and their files), ``linearizability`` (which
histories are legal), ``histories`` (all keys of a run, and the smallest illegal part of one), ``timeline`` (drawings of
such a part). Promises that a history which it calls illegal is illegal, and to say why.

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
