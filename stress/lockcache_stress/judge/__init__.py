# SPDX-License-Identifier: Apache-2.0
"""Judgement: decides which reads and histories are right, by two independent detectors.

``reads`` judges each read by a shared register while the run goes on. Histories record the operations of every process
on every key, with their times, and are judged after the run: could one register have had this history? The layers, of
which a lower one never imports a higher one: ``operations`` (records and their files), ``linearizability`` (which
histories are legal), ``histories`` (all keys of a run, and the smallest illegal part of one), ``timeline`` (drawings of
such a part). Promises that a history which it calls illegal is illegal, and to say why.

May use: plan.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.judge.histories import Judged, judge_histories
    from lockcache_stress.judge.operations import load_histories
    from lockcache_stress.judge.reads import SMALLEST_BYTES, ByteJudge, Judge, ProgramJudge, Verdict, is_stamped
    from lockcache_stress.judge.reads import make_value, parse_value, stamp_metadata
    from lockcache_stress.judge.recording import History
    from lockcache_stress.judge.register import Register, Snapshot, Stamp, attach
    from lockcache_stress.judge.removals import recorded_command
    from lockcache_stress.judge.tenures import Life, TenureVerdict, judge_tenures
    from lockcache_stress.judge.timeline import as_html, as_svg, as_text, explain

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
