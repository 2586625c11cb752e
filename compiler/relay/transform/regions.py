"""Regions of a body between `annotation.compiler_begin` and `annotation.compiler_end`.

Follows Relay's rules, so that region numbers and function names match Relay: each begin opens a
region, and the regions of a node's operands are merged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from ...errors import RelayError
from .. import dialect
from ..nested_expressions import handle, operands, post_order

BEGIN = "annotation.compiler_begin"
END = "annotation.compiler_end"
DEFAULT = "default"


def begin(value: relax.Expr, compiler: str) -> relax.Expr:
    """Annotate an operand that enters a region of a compiler."""
    return dialect.call(BEGIN, [value], {"compiler": compiler})


def end(value: relax.Expr, compiler: str) -> relax.Expr:
    """Annotate a value that leaves a region of a compiler."""
    return dialect.call(END, [value], {"compiler": compiler})


def is_begin(expr: Any) -> bool:
    return isinstance(expr, relax.Call) and dialect.relay_name(expr) == BEGIN


def is_end(expr: Any) -> bool:
    return isinstance(expr, relax.Call) and dialect.relay_name(expr) == END


def compiler_of(mark: relax.Call) -> str:
    """Compiler named by a begin or end annotation."""
    return str(mark.attrs["compiler"])


@dataclass(eq=False)
class Region:
    """Region of nodes for one compiler."""

    number: int
    compiler: str
    nodes: dict[int, relax.Expr] = field(default_factory=dict)  # by handle, including annotations
    ins: list[relax.Call] = field(default_factory=list)  # begins in traversal order
    outs: list[relax.Call] = field(default_factory=list)  # ends in traversal order

    def add(self, node: relax.Expr) -> None:
        self.nodes[handle(node)] = node


class Regions:
    """All regions of an annotated body; RelayError if begin and end annotations do not match.

    Numbers of regions count from `count`, which then is the next number.
    """

    def __init__(self, body: relax.Expr, count: int = 0) -> None:
        self._of: dict[int, Region] = {}
        self.count = count
        for node in post_order(body):
            self._place(node)

    def of(self, node: relax.Expr) -> Region | None:
        """Region of a node; None if it is in no region."""
        return self._of.get(handle(node))

    def all(self) -> list[Region]:
        """Regions in numerical order."""
        unique = {id(region): region for region in self._of.values()}
        return sorted(unique.values(), key=lambda region: region.number)

    def merge(self, source: Region, target: Region) -> None:
        """Merge two regions; the result has the number of `target`."""
        if source is target:
            return
        target.nodes.update(source.nodes)
        target.ins += source.ins
        target.outs += source.outs
        for mark in list(target.ins):
            if handle(mark.args[0]) in source.nodes:
                target.ins = [each for each in target.ins if not each.same_as(mark)]
                target.outs = [each for each in target.outs if not each.same_as(mark.args[0])]
        for key in source.nodes:
            self._of[key] = target

    def _place(self, node: relax.Expr) -> None:
        if is_begin(node):
            region = Region(self.count, compiler_of(node))
            self.count += 1
            region.ins.append(node)
        elif is_end(node):
            found = self.of(node.args[0])
            if found is None or found.compiler != compiler_of(node):
                raise RelayError(
                    f"a compiler_end of {compiler_of(node)} ends no region of that compiler"
                )
            region = found
            region.outs.append(node)
        else:
            open_ones = [
                found
                for each in operands(node)
                if not is_end(each)
                for found in [self.of(each)]
                if found is not None
            ]
            if not open_ones:
                return
            region = open_ones[0]
            for other in open_ones[1:]:
                self.merge(other, self._of.get(handle(region.ins[0]), region))
        region.add(node)
        self._of[handle(node)] = region
