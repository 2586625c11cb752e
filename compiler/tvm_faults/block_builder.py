"""TVM's BlockBuilder, usable in several threads at once.

TVM keeps the builders that are open on one list for the whole process and takes its last one for
the current one; a thread that opens a function while another does the same takes the wrong one.
Here each thread has a list of its own.
"""

from __future__ import annotations

import threading
from typing import Any

from tvm.relax import BlockBuilder

__all__ = ["BlockBuilder"]


class _StackOfThread:
    """What TVM uses of a list, on a list of the calling thread."""

    def __init__(self) -> None:
        self._local = threading.local()

    def _items(self) -> list[Any]:
        if not hasattr(self._local, "items"):
            self._local.items = []
        items: list[Any] = self._local.items
        return items

    def append(self, builder: BlockBuilder) -> None:
        self._items().append(builder)

    def pop(self) -> BlockBuilder:
        return self._items().pop()

    def __getitem__(self, index: int) -> BlockBuilder:
        return self._items()[index]

    def __len__(self) -> int:
        return len(self._items())


BlockBuilder._stack = _StackOfThread()
