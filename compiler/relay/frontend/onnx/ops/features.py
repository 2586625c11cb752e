"""Features of classical models: n-grams, columns, thresholds."""

from __future__ import annotations

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


CONVERTERS = {"TfIdfVectorizer": tf_idf_vectorizer}

ML_CONVERTERS = {
    "ArrayFeatureExtractor": array_feature_extractor,
    "Binarizer": binarizer,
    "LinearRegressor": linear_regressor,
}
