"""`relay.dataflow_pattern`: matching, rewriting and partitioning of Relay expressions.

Patterns match nested expressions. A module's function is converted to that form and back to
bindings; see `compiler.relay.nested_expressions`.
"""

from . import patterns
from .partition import DFPatternCallback, partition, rewrite
from .patterns import *  # noqa: F403


def match(pattern: patterns.DFPattern, expr: object) -> bool:  # type: ignore[no-redef]
    """Whether an expression matches a pattern at its root."""
    return pattern.match(expr)


__all__ = ["DFPatternCallback", "match", "partition", "rewrite"]
__all__ += [
    name
    for name, each in vars(patterns).items()
    if not name.startswith("_") and getattr(each, "__module__", "") == patterns.__name__
]
