"""`relay.dataflow_pattern`: matching, rewriting and partitioning of Relay expressions.

Patterns match nested expressions. A module's function is converted to that form and back to
bindings; see `compiler.relay.nested_expressions`.
"""

from .partition import DFPatternCallback, partition, rewrite
from .patterns import *  # noqa: F403
from .patterns import DFPattern


def match(pattern: DFPattern, expr: object) -> bool:
    """Whether an expression matches a pattern at its root."""
    return pattern.match(expr)


from .patterns import __all__ as _patterns  # noqa: E402

__all__ = ["DFPatternCallback", "match", "partition", "rewrite", *_patterns]
