"""Partitioning: backends claim subgraphs of a module and get them compiled.

`register` a partitioner, `partition` a module with it, look at the `subgraphs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.lazy import lazy_attributes

from .registry import Strategy, list_partitioners, register, unregister

if TYPE_CHECKING:
    from .driver import contract, partition
    from .info import SubgraphInfo, subgraphs

__all__ = [
    "Strategy",
    "SubgraphInfo",
    "contract",
    "list_partitioners",
    "partition",
    "register",
    "subgraphs",
    "unregister",
]

# What needs TVM is imported on first use.
__getattr__ = lazy_attributes(
    __name__,
    {
        "contract": ".driver",
        "partition": ".driver",
        "SubgraphInfo": ".info",
        "subgraphs": ".info",
    },
)
