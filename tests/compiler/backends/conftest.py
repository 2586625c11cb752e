from __future__ import annotations

from collections.abc import Iterator

import pytest

from compiler.backends import registered, restore


@pytest.fixture(autouse=True)
def _clean_registry() -> Iterator[None]:
    before = registered()
    yield
    restore(before)
