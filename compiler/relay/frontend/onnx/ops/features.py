"""Classical models: n-grams, columns, thresholds, linear models and ensembles of trees.

A tree's decisions are a row of zeros and ones. A leaf is reached where as many decisions as its
path has nodes are those of its path, which one matmul computes for all leaves.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from tvm import relax

from compiler.ir.constants import constant

from ..node import Node, dtype_of


def tf_idf_vectorizer(node: Node) -> relax.Expr:
    """How often each n-gram of a pool is in a row, and what that is worth."""
    if node.attr("pool_strings"):
        raise node.unsupported("n-grams of strings are not supported")
    shape = node.shape(0)
    count = shape[-1]
    data = relax.op.reshape(node[0], (int(np.prod(shape[:-1], dtype="int64")), count))
    data = node.emit(data)
    pool = np.array(node.attr("pool_int64s", ()), dtype_of(data))
    columns = np.array(node.attr("ngram_indexes", ()), "int64")
    shortest, longest = node.attr("min_gram_length"), node.attr("max_gram_length")
    starts = [*node.attr("ngram_counts", ()), len(pool)]
    matches, placed = [], 0
    for length in range(1, len(starts)):
        grams = pool[starts[length - 1] : starts[length]].reshape(-1, length)
        own = np.arange(placed, placed + len(grams))
        placed += len(grams)
        if not len(grams) or not shortest <= length <= longest:
            continue
        distances = 1 if length == 1 else node.attr("max_skip_count") + 1
        for distance in range(1, distances + 1):
            windows = count - (length - 1) * distance
            if windows > 0:
                found = _occurrences(node, data, grams, distance, windows)
                matches.append(relax.op.matmul(found, constant(_placed(own, columns))))
    width = int(columns.max()) + 1
    total = constant(np.zeros((int(data.ty.shape.values[0]), width), "float32"))
    for match in matches:
        total = node.emit(relax.op.add(total, match))
    weights = np.ones(width, "float32")
    if node.attr("weights"):
        weights[columns] = node.attr("weights")
    if node.attr("mode") == "IDF":
        total = relax.op.minimum(total, relax.const(1.0, "float32"))
    if node.attr("mode") != "TF":
        total = relax.op.multiply(total, constant(weights))
    return relax.op.reshape(total, (*shape[:-1], width))


def _occurrences(
    node: Node, data: relax.Expr, grams: np.ndarray, distance: int, windows: int
) -> relax.Expr:
    """How often each of some n-grams is in each row, its items `distance` apart: (row, gram)."""
    same = None
    for place in range(grams.shape[1]):
        begin = place * distance
        items = relax.op.strided_slice(data, [1], [begin], [begin + windows])
        equal = relax.op.equal(relax.op.expand_dims(items, 2), constant(grams[:, place]))
        same = equal if same is None else relax.op.logical_and(same, equal)
        same = node.emit(same)
    return node.emit(relax.op.sum(relax.op.astype(same, "float32"), 1))


def _placed(own: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The matrix that brings counts of the n-grams `own` to their columns."""
    return (columns[own][:, None] == np.arange(columns.max() + 1)).astype("float32")


def array_feature_extractor(node: Node) -> relax.Expr:
    """Some columns."""
    data = node[0] if len(node.shape(0)) > 1 else relax.op.expand_dims(node[0], 0)
    columns = relax.op.reshape(node[1], (int(np.prod(node.shape(1), dtype="int64")),))
    return relax.op.take(data, columns, len(node.shape(0)) - 1 or -1, mode="fast")


def binarizer(node: Node) -> relax.Expr:
    """1 above a threshold, else 0."""
    dtype = node.dtype(0)
    above = relax.op.greater(node[0], relax.const(node.attr("threshold", 0.0), dtype))
    return relax.op.astype(above, dtype)


def linear_regressor(node: Node) -> relax.Expr:
    """One weighted sum of a row's features for each target."""
    transform = node.attr("post_transform", "NONE")
    if transform != "NONE":
        raise node.unsupported(f"the attribute post_transform={transform!r} is not supported")
    targets, features = node.attr("targets", 1), node.shape(0)[-1]
    weights = np.array(node.required("coefficients"), "float32")
    if weights.size < targets * features:
        raise node.unsupported(f"{targets} targets of {features} features have more coefficients")
    weights = weights[: targets * features].reshape(targets, features)
    data = node.emit(relax.op.astype(node[0], "float32"))
    sums = node.emit(relax.op.matmul(data, constant(np.ascontiguousarray(weights.T))))
    offsets = node.attr("intercepts")
    return relax.op.add(sums, constant(np.array(offsets, "float32"))) if offsets else sums


_COMPARISONS = (
    relax.op.less_equal,
    relax.op.less,
    relax.op.greater_equal,
    relax.op.greater,
    relax.op.equal,
    relax.op.not_equal,
)
_MEMBER = 6  # follows the comparisons
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


CONVERTERS = {"TfIdfVectorizer": tf_idf_vectorizer}

ML_CONVERTERS = {
    "ArrayFeatureExtractor": array_feature_extractor,
    "Binarizer": binarizer,
    "LinearRegressor": linear_regressor,
    "TreeEnsemble": tree_ensemble,
}
