"""Oracle data of the symbol tests: what the real MXNet wrote."""

from __future__ import annotations

import pathlib

import pytest


@pytest.fixture(scope="session")
def oracle() -> pathlib.Path:
    """Folder with MXNet's symbols, parameters and results."""
    return pathlib.Path(__file__).parents[2] / "oracle" / "mxnet"
