"""Partitioning: backends claim subgraphs of a module and get them compiled."""

from typing import TYPE_CHECKING

from compiler.backends import Strategy, Unsupported, list_partitioners, register, unregister
from compiler.support.lazy_import import by_module, lazy_attributes

from .selector import Selector

if TYPE_CHECKING:
    from compiler.ir.outline_by_name import contract
    from compiler.records.placement_log import PlacementLog, PlacementRecord

    from .candidates import Candidate, Partitioning
    from .driver import explain, partition, partition_with_report
    from .explanation import Explanation
    from .info import SubgraphInfo, subgraphs
    from .placement import Fastest

# What needs TVM is imported on first use.
__getattr__ = lazy_attributes(
    __name__,
    by_module(
        {
            "..ir.outline_by_name": "contract",
            ".driver": "partition partition_with_report explain",
            ".explanation": "Explanation",
            ".candidates": "Candidate Partitioning",
            ".info": "SubgraphInfo subgraphs",
            ".placement": "Fastest",
            "..records.placement_log": "PlacementLog PlacementRecord",
        }
    ),
)
