"""What all tests have in common: no kernel comes from an earlier run's cache."""

from __future__ import annotations

import pytest

from compiler.lowering.cache.kernel_cache import LIMIT_VARIABLE


@pytest.fixture(autouse=True, scope="session")
def _no_kernel_cache():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LIMIT_VARIABLE, "0")
        yield
