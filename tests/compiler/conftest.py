"""What several folders of tests share."""

from __future__ import annotations

import pathlib

import pytest


@pytest.fixture(scope="session")
def oracle() -> pathlib.Path:
    """Folder with MXNet's symbols, parameters and results."""
    return pathlib.Path(__file__).parents[1] / "oracle" / "mxnet"


@pytest.fixture(scope="session")
def checker(tmp_path_factory):
    """Checks replayed kernels; its verdicts are kept for these tests alone."""
    from compiler.lowering.cache.kernel_cache import KernelCache
    from compiler.lowering.validate.validator import Checker

    with Checker(KernelCache(tmp_path_factory.mktemp("verdicts"), 10**7)) as made:
        yield made
