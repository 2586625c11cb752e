"""What all tests have in common: no cache of an earlier run, and no kernel is compiled twice."""

from __future__ import annotations

import gc
import zlib

import numpy as np
import pytest
from tvm.support import cc

from compiler.ir.rewrite import DEBUG_VARIABLE
from compiler.lowering.cache.kernel_cache import LIMIT_VARIABLE
from compiler.lowering.codegen import compile_kernels
from tests import fast_builds

_compile_all, _generate = compile_kernels._compile_all, compile_kernels._generate


def pytest_collection_finish():
    """Modules and tests stay: searching them for garbage time and again takes a lot."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _the_same_random_numbers_each_time(request):
    """For tests that draw from numpy's own generator: each has its seed, wherever it runs."""
    np.random.seed(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(autouse=True, scope="session")
def _no_kernel_cache():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LIMIT_VARIABLE, "0")
        patch.setenv(DEBUG_VARIABLE, "1")
        yield


@pytest.fixture(autouse=True)
def _optimized_where_code_is_tested(request, monkeypatch):
    """LLVM's optimizer runs where kernels are what is tested; see `tests/fast_builds.py`."""
    monkeypatch.setattr(_Kernels, "optimized", fast_builds.is_optimized(request.path))


class _Kernels:
    optimized = True


@pytest.fixture(autouse=True, scope="session")
def _equal_kernels_are_compiled_once():
    """Across tests; unlike the cache on disk, this is in no report and keeps no library."""
    known: dict[tuple[str, bool], bytes] = {}

    def compile_new(kernels, target):
        level = _Kernels.optimized
        new = {symbol: each for symbol, each in kernels.items() if (each[0], level) not in known}
        for symbol, code in _compile_all(new, target).items():
            known[kernels[symbol][0], level] = code
        return {symbol: known[key, level] for symbol, (key, _) in kernels.items()}

    def generate(mod, target, *rest):
        return _generate(
            mod, target if _Kernels.optimized else fast_builds.unoptimized(target), *rest
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_kernels, "_compile_all", compile_new)
        patch.setattr(compile_kernels, "_generate", generate)
        patch.setattr(cc, "create_shared", fast_builds.link)
        yield


@pytest.fixture
def compiles_every_kernel(monkeypatch):
    """For tests of what is compiled, and when."""
    monkeypatch.setattr(compile_kernels, "_compile_all", _compile_all)
