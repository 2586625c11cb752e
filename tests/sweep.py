"""How many random examples a test builds: a few each time, many with `make sweep`."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

FACTOR = int(os.environ.get("BATON_SWEEP", "1"))


def examples(count: int, **more: Any) -> settings:
    """Settings of a test whose examples are builds: `count` of them, the same ones in each run."""
    return settings(
        max_examples=count * FACTOR, deadline=None, derandomize=True, database=None, **more
    )
