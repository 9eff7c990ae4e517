# SPDX-License-Identifier: Apache-2.0
"""Hostile ELF files: tables or a ValueError, whatever the bytes. Real ones are in tests/cuda."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given, settings, strategies as st

from lockcache.cli.cubin import read_kernels
from lockcache.cli.payload_contents import read_code
from tests.limits import within


def elf(sections: list[tuple[str, bytes]], **header: int) -> bytearray:
    """A little cubin with these sections, as the format says."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _ in sections) + b".shstrtab\0"
    body, heads, name_at = bytearray(64), [bytes(64)], 1
    for name, data in [*sections, (".shstrtab", names)]:
        kind = {".symtab": 2, ".strtab": 3, ".shstrtab": 3}.get(name, 1)
        link = 1 + [n for n, _ in sections].index(".strtab") if name == ".symtab" else 0
        heads.append(struct.pack("<IIQQQQIIQQ", name_at, kind, 0, 0, len(body), len(data), link, 0, 1, 24))
        body += data
        name_at += len(name) + 1
    values = {"flags": 0x6005A04, "shoff": len(body), "shentsize": 64, "shnum": len(heads), "shstrndx": len(heads) - 1}
    values |= header
    body[:64] = struct.pack(
        "<4sBBBBB7sHHIQQQIHHHHHH",
        *(b"\x7fELF", 2, 1, 1, 0x41, 8, bytes(7), 2, 190, 1, 0, 0),
        *(values["shoff"], values["flags"], 64, 56, 0, values["shentsize"], values["shnum"], values["shstrndx"]),
    )
    return body + b"".join(heads)


STRINGS = b"\0kernel\0helper\0"
SYMBOLS = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0x10, 3, 0, 64) + struct.pack("<IBBHQQ", 8, 0x12, 0, 3, 0, 64)
REGISTERS = struct.pack("<BBHII", 4, 0x2F, 8, 1, 40)
STACK = struct.pack("<BBHII", 4, 0x12, 8, 1, 1024)
WHOLE = [
    (".symtab", SYMBOLS),
    (".strtab", STRINGS),
    (".text.kernel", bytes(128)),
    (".nv.info", struct.pack("<BBH", 3, 0x99, 7) + REGISTERS + STACK),
    (".nv.shared.kernel", bytes(16)),
]


def test_a_small_cubin_gives_its_kernels_and_not_its_device_functions() -> None:
    [kernel] = read_kernels(bytes(elf(WHOLE)))
    assert (kernel.name, kernel.code_bytes, kernel.shared_bytes) == ("kernel", 128, 16)
    assert (kernel.registers, kernel.stack_bytes) == (40, 1024)


def test_what_no_cubin_is_or_a_table_that_would_take_all_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = elf(WHOLE)
    other[5] = 2  # big-endian
    for payload, named in ((other, "64-bit little-endian"), (_with_flags(elf(WHOLE), 0x800), "is compressed")):
        with pytest.raises(ValueError, match=named):
            read_kernels(bytes(payload))
    monkeypatch.setattr("lockcache.cli.cubin._LARGEST_TABLE_BYTES", 70)
    with pytest.raises(ValueError, match=r"symtab is compressed, or has 72 bytes"):
        read_kernels(bytes(elf(WHOLE)))
    monkeypatch.undo()
    monkeypatch.setattr("lockcache.cli.cubin._MOST_SYMBOLS", 2)
    with pytest.raises(ValueError, match="it has 3 symbols"):
        read_kernels(bytes(elf(WHOLE)))


@pytest.mark.parametrize(
    "payload, named",
    [
        (elf(WHOLE)[:60], "cut off"),
        (elf(WHOLE)[:-1], "sections is damaged, or cut off"),
        (elf(WHOLE, shnum=20_001), "it has 20001 sections"),
        (elf(WHOLE, shstrndx=7), "their names in section 7"),
    ],
)
def test_a_damaged_header_is_an_error_that_says_what_is_wrong(payload: bytearray, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        read_kernels(bytes(payload))


def test_names_that_are_ends_of_one_long_string_fill_no_memory() -> None:
    """Half a megabyte of which every section has a name of 48 KB, or every symbol one of 4 KB."""
    long = b"k" * 48_000 + b"\0"
    sections = elf([(".symtab", SYMBOLS), (".strtab", STRINGS), *[("", b"")] * 7000])
    [start, *_] = struct.unpack_from("<Q", sections, 40)
    [count, names_at] = struct.unpack_from("<HH", sections, 60)
    struct.pack_into("<QQ", sections, start + names_at * 64 + 24, len(sections), len(long))
    for n in range(3, count - 1):
        struct.pack_into("<I", sections, start + n * 64, n)
    sections += long
    symbols = b"".join(struct.pack("<IBBHQQ", n, 0x12, 0x10, 3, 0, 64) for n in range(9000))
    for payload in (sections, elf([(".symtab", symbols), (".strtab", long)])):
        tracemalloc.start()
        code = read_code(bytes(payload))
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert "its names take more than" in code["error"]
        assert peak_bytes < 48 << 20


def test_no_more_kernels_are_listed_than_anybody_reads() -> None:
    symbols = struct.pack("<IBBHQQ", 1, 0x12, 0x10, 3, 0, 64) * 10_001
    assert "more than 10000 kernels" in read_code(bytes(elf([(".symtab", symbols), (".strtab", STRINGS)])))["error"]
    code = read_code(b".version 9.5\n" + b".entry k\n" * 10_001)
    assert (len(code["entries"]), code["error"]) == (
        10_000,
        "it has more than 10000 entry functions: these are the first",
    )
    code = read_code(b".version 9.5\n" + (b".entry " + b"k" * 4000 + b"\n") * 2000)
    assert sum(map(len, code["entries"])) <= 4 << 20
    assert "its names take more than" in code["error"]


@pytest.mark.slow
def test_text_of_ptx_is_read_in_linear_time() -> None:
    repeated = ["/*", "a/**/", "/* ", "//", ".entry/*", ".entry ", ".entry/**/ ", "\n .target ", "\n "]
    script = "import sys; from lockcache.cli.payload_contents import read_code; size = 2 << 20\n"
    script += "for text in map(str.encode, sys.argv[1:]): read_code(b'.version 9.5\\n' + text * (size // len(text)))"
    within(60, script, *repeated)


def test_a_comment_that_nobody_closes_goes_to_the_end() -> None:
    code = read_code(b".version 9.5\n.entry /* of */ k\n/* .entry not_me\n.entry nor_me")
    assert code["entries"] == ["k"]


def _with_flags(payload: bytearray, flags: int) -> bytearray:
    """The flags of the first section."""
    [start] = struct.unpack_from("<Q", payload, 40)
    struct.pack_into("<Q", payload, start + 64 + 8, flags)
    return payload


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_damage_to_a_cubin_is_more_than_an_error_in_words(data: st.DataObject) -> None:
    damaged = elf(WHOLE)
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    read_code(bytes(damaged))
