"""Partitioning: backends claim subgraphs of a module and get them compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.backends import Strategy, Unsupported, list_partitioners, register, unregister
from compiler.support.lazy_import import lazy_attributes

from .selector import Selector

if TYPE_CHECKING:
    from compiler.ir.outline_by_name import contract

    from .candidates import Candidate, Partitioning
    from .driver import explain, partition, partition_with_report
    from .explanation import Explanation
    from .info import SubgraphInfo, subgraphs

__all__ = [
    "Candidate",
    "Explanation",
    "Partitioning",
    "Selector",
    "Strategy",
    "SubgraphInfo",
    "Unsupported",
    "contract",
    "explain",
    "list_partitioners",
    "partition",
    "partition_with_report",
    "register",
    "subgraphs",
    "unregister",
]

# What needs TVM is imported on first use.
__getattr__ = lazy_attributes(
    __name__,
    {
        "contract": "..ir.outline_by_name",
        "partition": ".driver",
        "partition_with_report": ".driver",
        "Explanation": ".explanation",
        "explain": ".driver",
        "Candidate": ".candidates",
        "Partitioning": ".candidates",
        "SubgraphInfo": ".info",
        "subgraphs": ".info",
    },
)
