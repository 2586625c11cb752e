"""Ensembles of decision trees, as products of matrices.

A tree's decisions are a row of zeros and ones. A leaf is reached where as many decisions as its
path has nodes are those of its path, which one product tells of all leaves.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from tvm import relax

from compiler.ir.constants import constant

from ..node import Node

_COMPARISONS = (
    relax.op.less_equal,
    relax.op.less,
    relax.op.greater_equal,
    relax.op.greater,
    relax.op.equal,
    relax.op.not_equal,
)
_MEMBER = 6  # behind the comparisons
_AVERAGE, _SUM = 0, 1
_NONE, _SOFTMAX, _LOGISTIC = 0, 1, 2


def tree_ensemble(node: Node) -> relax.Expr:
    """Sums or averages of what the leaves that are reached weigh for each target."""
    aggregate, transform = node.attr("aggregate_function", _SUM), node.attr("post_transform", 0)
    if aggregate not in (_AVERAGE, _SUM) or transform not in (_NONE, _SOFTMAX, _LOGISTIC):
        raise node.unsupported(
            f"aggregate_function={aggregate} or post_transform={transform} is not supported"
        )
    roots = node.attr("tree_roots")
    total: Any = None
    for root in roots:
        value = _tree(node, root)
        total = value if total is None else node.emit(relax.op.add(total, value))
    if aggregate == _AVERAGE:
        total = relax.op.divide(total, relax.const(float(len(roots)), node.dtype(0)))
    if transform == _SOFTMAX:
        return relax.op.nn.softmax(total, -1)
    return relax.op.sigmoid(total) if transform == _LOGISTIC else total


def _tree(node: Node, root: int) -> relax.Expr:
    """Leaf weights of one tree: (rows, targets)."""
    dtype = node.dtype(0)
    leaves = list(_paths(node, root))
    inner = sorted({at for path, _ in leaves for at, _ in path})
    paths = np.zeros((len(inner), len(leaves)), dtype)
    wanted = np.zeros(len(leaves), dtype)
    weights = np.zeros((len(leaves), node.attr("n_targets", 1)), dtype)
    targets, weighs = node.attr("leaf_targetids"), _array(node, "leaf_weights")
    for column, (path, leaf) in enumerate(leaves):
        for at, taken in path:
            paths[inner.index(at), column] = 1 if taken else -1
            wanted[column] += taken
        weights[column, targets[leaf]] = weighs[leaf]
    decisions = relax.op.matmul(_decisions(node, inner), constant(paths))
    reached = relax.op.equal(node.emit(decisions), constant(wanted))
    product = relax.op.matmul(relax.op.astype(reached, dtype), constant(weights))
    return node.emit(product)


def _paths(node: Node, root: int) -> Iterator[tuple[list[tuple[int, bool]], int]]:
    """Each leaf of a tree with the nodes above it, and whether their true branch leads there."""
    branches = {
        True: (node.attr("nodes_truenodeids"), node.attr("nodes_trueleafs")),
        False: (node.attr("nodes_falsenodeids"), node.attr("nodes_falseleafs")),
    }
    count = len(node.attr("nodes_featureids"))
    open_: list[tuple[int, list[tuple[int, bool]]]] = [(root, [])]
    while open_:
        at, path = open_.pop()
        if not 0 <= at < count or len(path) > count:
            raise node.unsupported(f"node {at} is not a node of a tree")
        for taken, (following, is_leaf) in branches.items():
            further = [*path, (at, taken)]
            if is_leaf[at]:
                yield further, following[at]
            else:
                open_.append((following[at], further))


def _decisions(node: Node, inner: list[int]) -> relax.Expr:
    """Whether the true branch of each of these nodes is taken: (rows, nodes), 0 or 1."""
    dtype = node.dtype(0)
    features = np.array(node.attr("nodes_featureids"), "int64")[inner]
    values = node.emit(relax.op.take(node[0], constant(features), 1, mode="fast"))
    splits, modes = _array(node, "nodes_splits")[inner], _array(node, "nodes_modes")
    chosen = relax.op.full_like(values, relax.const(0.0, dtype))
    for mode in sorted(set(modes[inner].tolist())):
        if mode == _MEMBER:
            true = _membership(node, values, inner, modes)
        elif mode < _MEMBER:
            true = _COMPARISONS[mode](values, constant(splits.astype(dtype)))
        else:
            raise node.unsupported(f"node mode {mode}")
        here = constant((modes[inner] == mode).astype(dtype))
        chosen = node.emit(
            relax.op.add(chosen, relax.op.multiply(relax.op.astype(true, dtype), here))
        )
    tracks = node.attr("nodes_missing_value_tracks_true")
    if tracks:
        tracked = constant(np.array(tracks, dtype)[inner])
        missing = relax.op.multiply(relax.op.astype(relax.op.isnan(values), dtype), tracked)
        chosen = relax.op.maximum(chosen, missing)
    return node.emit(chosen)


def _membership(node: Node, values: relax.Expr, inner: list[int], modes: np.ndarray) -> relax.Expr:
    """Whether each value is in its node's set; the sets follow each other, with NaN behind each."""
    given = _array(node, "membership_values")
    sets = np.split(given, np.flatnonzero(np.isnan(given)) + 1)
    of_node = dict(zip(np.flatnonzero(modes == _MEMBER).tolist(), sets))
    longest = max(map(len, sets))
    table = np.full((longest, len(inner)), np.nan, node.dtype(0))  # NaN equals nothing
    for column, at in enumerate(inner):
        if at in of_node:
            table[: len(of_node[at]), column] = of_node[at]
    rows = [relax.op.equal(values, constant(row)) for row in table]
    return node.emit(functools.reduce(relax.op.logical_or, rows))


def _array(node: Node, name: str) -> np.ndarray:
    """A tensor among the attributes."""
    from ..model import tensor_array

    return tensor_array(node.attrs[name]).reshape(-1)


CONVERTERS = {"TreeEnsemble": tree_ensemble}
