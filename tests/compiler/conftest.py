"""What the real MXNet wrote, for the tests of symbols and of its files."""

from __future__ import annotations

import pathlib

import pytest


@pytest.fixture(scope="session")
def oracle() -> pathlib.Path:
    """Folder with MXNet's symbols, parameters and results."""
    return pathlib.Path(__file__).parents[1] / "oracle" / "mxnet"
