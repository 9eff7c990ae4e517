# SPDX-License-Identifier: Apache-2.0
"""The judges find what was planted, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache_stress.judge.reads import ByteJudge, ProgramJudge, Verdict, make_value, stamp_metadata
from lockcache_stress.judge.register import Register, Stamp
from lockcache_stress.plan import now_us
from tests.stress.support import make_plan

_TOKEN = b"runtoken"


class TestBytes:
    @pytest.fixture
    def register(self, tmp_path: Path) -> Register:
        return Register(make_plan(tmp_path), 0, now_us())

    def _write(self, register: Register, key: int) -> bytes:
        stamp = register.begin_write(key)
        register.end_write(key, stamp)
        return make_value(_TOKEN, key, stamp, 300)

    def _judge(self, register: Register, key: int, code: bytes) -> Verdict:
        return ByteJudge(_TOKEN, register).judge(key, register.begin_read(key), code, None)[0]

    def test_what_was_written_last_is_right(self, register: Register) -> None:
        assert self._judge(register, 1, self._write(register, 1)) is Verdict.OK

    def test_half_a_value_is_torn(self, register: Register) -> None:
        assert self._judge(register, 1, self._write(register, 1)[:150]) is Verdict.TORN

    def test_nothing_at_all_is_torn(self, register: Register) -> None:
        self._write(register, 1)
        assert self._judge(register, 1, b"") is Verdict.TORN

    def test_another_keys_value_is_foreign(self, register: Register) -> None:
        assert self._judge(register, 1, self._write(register, 2)) is Verdict.FOREIGN

    def test_another_runs_value_is_foreign(self, register: Register) -> None:
        value = make_value(b"otherrun", 1, Stamp(0, 0, 1, 1), 300)
        assert self._judge(register, 1, value) is Verdict.FOREIGN

    def test_the_value_before_the_last_is_stale(self, register: Register) -> None:
        old = self._write(register, 1)
        self._write(register, 1)
        assert self._judge(register, 1, old) is Verdict.STALE


class TestPrograms:
    CONTENTS = ((b"one, first variant", b"one, second variant"), (b"two",))

    @pytest.fixture
    def register(self, tmp_path: Path) -> Register:
        return Register(make_plan(tmp_path, keys=2, variants=2), 0, now_us())

    def _write(self, register: Register, variant: int) -> Stamp:
        stamp = register.begin_write(0, variant)
        register.end_write(0, stamp)
        return stamp

    def _judge(self, register: Register, code: bytes, stamp: Stamp | None) -> Verdict:
        metadata = None if stamp is None else stamp_metadata(stamp)
        return ProgramJudge(self.CONTENTS, register).judge(0, register.begin_read(0), code, metadata)[0]

    def test_the_last_variant_is_right_with_and_without_metadata(self, register: Register) -> None:
        stamp = self._write(register, 1)
        assert self._judge(register, b"one, second variant", stamp) is Verdict.OK
        assert self._judge(register, b"one, second variant", None) is Verdict.OK

    def test_bytes_of_no_reference_are_torn(self, register: Register) -> None:
        stamp = self._write(register, 0)
        assert self._judge(register, b"one, first var", stamp) is Verdict.TORN
        assert self._judge(register, b"one, first var", None) is Verdict.TORN

    def test_another_keys_program_is_foreign(self, register: Register) -> None:
        assert self._judge(register, b"two", self._write(register, 0)) is Verdict.FOREIGN

    def test_code_with_another_variants_metadata_is_torn(self, register: Register) -> None:
        stamp = self._write(register, 0)
        assert self._judge(register, b"one, second variant", stamp) is Verdict.TORN

    @pytest.mark.parametrize("found", [None, 5, [0, 0, 1], ["0", 0, 1, 5], [9, 0, 1, 5]])
    def test_metadata_of_no_write_is_torn(self, register: Register, found: object) -> None:
        self._write(register, 0)
        judge = ProgramJudge(self.CONTENTS, register)
        verdict, _ = judge.judge(0, register.begin_read(0), b"one, first variant", {"stamp": found})
        assert verdict is Verdict.TORN

    def test_an_overwritten_variant_is_stale_with_and_without_metadata(self, register: Register) -> None:
        old = self._write(register, 0)
        self._write(register, 1)
        assert self._judge(register, b"one, first variant", old) is Verdict.STALE
        assert self._judge(register, b"one, first variant", None) is Verdict.STALE

    def test_only_metadata_tells_an_old_write_of_the_same_bytes_from_the_new(self, register: Register) -> None:
        old = self._write(register, 0)
        new = self._write(register, 0)
        assert self._judge(register, b"one, first variant", old) is Verdict.STALE
        assert self._judge(register, b"one, first variant", new) is Verdict.OK
        assert self._judge(register, b"one, first variant", None) is Verdict.OK
