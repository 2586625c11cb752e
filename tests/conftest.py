"""What all tests have in common: no cache of an earlier run, and no kernel is compiled twice."""

from __future__ import annotations

import gc
import zlib

import numpy as np
import pytest

from compiler.ir.rewrite import DEBUG_VARIABLE
from compiler.lowering.cache.kernel_cache import LIMIT_VARIABLE
from compiler.lowering.codegen import compile_kernels

_compile_all = compile_kernels._compile_all


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


@pytest.fixture(autouse=True, scope="session")
def _equal_kernels_are_compiled_once():
    """Across tests; unlike the cache on disk, this is in no report and keeps no library."""
    known: dict[str, bytes] = {}

    def compile_new(kernels, target):
        new = {symbol: each for symbol, each in kernels.items() if each[0] not in known}
        for symbol, code in _compile_all(new, target).items():
            known[kernels[symbol][0]] = code
        return {symbol: known[key] for symbol, (key, _) in kernels.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_kernels, "_compile_all", compile_new)
        yield


@pytest.fixture
def compiles_every_kernel(monkeypatch):
    """For tests of what is compiled, and when."""
    monkeypatch.setattr(compile_kernels, "_compile_all", _compile_all)
