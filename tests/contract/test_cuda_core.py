# SPDX-License-Identifier: Apache-2.0
"""With the real cuda.core: its Program takes our caches, and its ObjectCode is a value."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lockcache import Entry
from tests.contract.backends import BACK_ENDS
from tests.matrix_sampling import EXHAUSTIVE

pytestmark = pytest.mark.cuda

SOURCE = 'extern "C" __global__ void f(int *x) { *x = 1; }'


@pytest.fixture(scope="module")
def compiled():
    return compile_("cubin")


def compile_(target, cache=None, source=SOURCE, **options):
    from cuda.core import Program, ProgramOptions

    program = Program(source, "c++", ProgramOptions(arch="sm_90", **options))
    try:
        return program.compile(target, cache=cache) if cache is not None else program.compile(target)
    finally:
        program.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "back_end",
    [pytest.param(each, marks=[EXHAUSTIVE] * (each.name not in ("filestream", "sqlite"))) for each in BACK_ENDS],
    ids=str,
)
def test_every_back_end_passes_cuda_cores_isinstance_check_even_loaded_before_it(back_end, cache_path, request):
    if back_end.has_server:
        request.getfixturevalue("server")
    # A process of its own: here cuda.core may be loaded already, and registration is for the life of a process.
    code = """
import sys
from pathlib import Path
from tests.contract.backends import BACK_ENDS
back_end = next(b for b in BACK_ENDS if b.name == sys.argv[1])
before = back_end.make(Path(sys.argv[2]))
assert "cuda" not in sys.modules
class Sub(type(before)):
    pass
import cuda.core.utils as utils
assert isinstance(before, utils.ProgramCacheResource)
after = back_end.make(Path(sys.argv[2]), kind=Sub)
assert isinstance(after, utils.ProgramCacheResource) and type(after) is Sub
assert not isinstance(object(), utils.ProgramCacheResource) and not isinstance({}, utils.ProgramCacheResource)
"""
    subprocess.run([sys.executable, "-c", code, back_end.name, str(cache_path)], check=True, timeout=60)


def test_a_subclass_passes_cuda_cores_isinstance_check(make, cache):
    from cuda.core.utils import ProgramCacheResource

    class Sub(type(cache)):
        pass

    class SubSub(Sub):
        pass

    assert isinstance(make(kind=SubSub), ProgramCacheResource)


def test_the_second_compile_is_a_hit_with_the_same_code(dropin):
    first = compile_("cubin", dropin)
    assert len(dropin) == 1
    second = compile_("cubin", dropin)
    assert len(dropin) == 1
    assert bytes(first.code) == bytes(second.code) == bytes(compile_("cubin").code)
    assert (second.code_type, second.name) == (first.code_type, first.name)


def test_the_second_compile_does_not_compile(cache):
    compile_("cubin", cache)
    assert (cache.stats().misses, cache.stats().puts) == (1, 1)
    compile_("cubin", cache)
    stats = cache.stats()
    assert (stats.hits, stats.puts, stats.dropped_writes) == (1, 1, 0)


def test_what_is_in_the_cache_is_what_compile_gives(cache):
    compile_("cubin", cache)
    from cuda.core import ProgramOptions

    from lockcache import make_program_cache_key

    for key_maker in (make_program_cache_key, _upstream_key()):
        key = key_maker(code=SOURCE, code_type="c++", options=ProgramOptions(arch="sm_90"), target_type="cubin")
        if cache.get(key) is not None:
            break
    else:
        pytest.fail("neither key finds what was compiled")
    cache[key] = b"planted"
    assert bytes(compile_("cubin", cache).code) == b"planted"


def _upstream_key():
    from cuda.core.utils import make_program_cache_key

    return make_program_cache_key


@pytest.mark.slow
def test_another_option_source_or_target_is_another_entry(dropin):
    compile_("cubin", dropin)
    compile_("cubin", dropin, source=SOURCE.replace("1", "2"))
    compile_("cubin", dropin, max_register_count=32)
    compile_("ltoir", dropin, link_time_optimization=True)
    assert len(dropin) == 4


def test_an_object_code_is_stored_as_its_code(dropin, compiled):
    dropin["k"] = compiled
    assert dropin["k"] == bytes(compiled.code)
    assert type(dropin["k"]) is bytes


def test_an_object_code_brings_its_kind_and_symbols(cache):
    from cuda.core import ObjectCode

    cache["k"] = ObjectCode.from_ptx(b".version 8.0", symbol_mapping={"f<int>": "_Z1fIiE"})
    entry = cache.get_entry("k")
    assert entry == Entry(b".version 8.0", {"kind": "ptx", "symbol_mapping": {"f<int>": "_Z1fIiE"}})


def test_an_entry_of_an_object_code_keeps_both_metadata(cache, compiled):
    cache.put_entry("k", Entry(compiled, {"arch": "sm_90", "compile_cost_ns": 7}))
    found = dict(cache.get_entry("k").metadata)
    assert found.pop("compiler").startswith("cuda ")  # as the cubin itself says
    assert found.pop("kernels") == ["f"]
    assert found == {"kind": "cubin", "arch": "sm_90", "compile_cost_ns": 7}


def test_a_path_backed_object_code_is_read_when_it_is_stored(dropin, tmp_path):
    from cuda.core import ObjectCode

    file = tmp_path / "k.cubin"
    file.write_bytes(b"from a file")
    dropin["k"] = ObjectCode.from_cubin(str(file))
    file.unlink()
    assert dropin["k"] == b"from a file"


def test_a_path_backed_object_code_whose_file_is_gone_is_an_error_that_names_it(dropin, tmp_path):
    from cuda.core import ObjectCode

    gone = str(tmp_path / "gone.cubin")
    dropin["k"] = b"older"
    with pytest.raises(FileNotFoundError, match=r"gone\.cubin"):
        dropin["k"] = ObjectCode.from_cubin(gone)
    assert dropin["k"] == b"older"


def test_a_path_backed_object_code_with_an_empty_file_is_refused(cache, tmp_path):
    from cuda.core import ObjectCode

    empty = tmp_path / "empty.cubin"
    empty.touch()
    with pytest.raises(ValueError, match="value must hold code"):
        cache["k"] = ObjectCode.from_cubin(str(empty))


def test_a_compile_that_yields_nothing_is_refused_and_says_which_option_is_missing(cache):
    nothing = compile_("ltoir")
    assert bytes(nothing.code) == b""  # or NVRTC has changed, and the promise is void
    with pytest.raises(ValueError, match="link_time_optimization"):
        cache["k"] = nothing
    with pytest.raises(ValueError, match="link_time_optimization"):
        compile_("ltoir", cache)
    assert (len(cache), cache.stats().puts) == (0, 0)
