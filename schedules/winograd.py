"""Winograd transforms F(m x m, r x r), for every target.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015); the matrices by the
Toom-Cook construction over the points 0, 1, -1, 2, -2, 1/2, ... and infinity.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from tvm import tirx

MOST_WHOLE_POINTS = 6
"""Including infinity, the last one; larger sets of points contain fractions."""

Matrix = Sequence[Sequence[float]]

_POINTS = [Fraction(p) for p in (0, 1, -1, 2, -2)] + [
    Fraction(1, 2),
    Fraction(-1, 2),
    Fraction(4),
    Fraction(-4),
    Fraction(1, 4),
    Fraction(-1, 4),
]


@functools.lru_cache(maxsize=16)
def transform_matrices(m: int, r: int) -> tuple[Matrix, Matrix, Matrix]:
    """A (m, alpha), B (alpha, alpha), G (alpha, r): out = A [(G g) * (B d)], alpha = m + r - 1."""
    finite = _POINTS[: m + r - 2]
    last = len(finite)
    a = [[float(p**row) for p in finite] + [float(row == m - 1)] for row in range(m)]
    g, b = [], []
    for index, point in enumerate(finite):
        others = [p for p in finite if p is not point]
        scale = Fraction(1)
        for other in others:
            scale *= point - other
        g.append([float(point**column / scale) for column in range(r)])
        b.append([float(c) for c in _polynomial(others)] + [0.0])
        assert len(b[index]) == last + 1
    g.append([float(column == r - 1) for column in range(r)])
    b.append([float(c) for c in _polynomial(finite)])
    return a, b, g


@functools.lru_cache(maxsize=16)
def integer_matrices(m: int, r: int) -> tuple[Matrix, Matrix, Matrix]:
    """A, B and G of whole numbers, whose out is `unit` times that of `transform_matrices`.

    The point infinity has half of the unit in G and the other half in A, so that G stays small.
    Raises ValueError: the points are no whole numbers: more than six.
    """
    a, b, g = transform_matrices(m, r)
    if m + r - 1 > MOST_WHOLE_POINTS:
        raise ValueError(f"F({m}, {r}) has points that are no whole numbers")
    whole = unit(m, r)
    share = math.gcd(2, whole)
    factors = [whole] * (len(g) - 1) + [whole // share]
    rows = [[factor * each for each in row] for factor, row in zip(factors, g, strict=True)]
    last = [[*row[:-1], row[-1] * share] for row in a]
    exact, of_data, of_taps = (
        [[round(x) for x in row] for row in each] for each in (last, b, rows)
    )
    return exact, of_data, of_taps


def unit(m: int, r: int) -> int:
    """The least number by which G of m outputs of r taps becomes whole."""
    fractions = [
        Fraction(x).limit_denominator(1000) for row in transform_matrices(m, r)[2] for x in row
    ]
    return math.lcm(*(each.denominator for each in fractions))


def _polynomial(roots: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients of the product of (x - root), constant first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        scaled = [*(-root * c for c in coefficients), Fraction(0)]
        coefficients = [x + y for x, y in zip(shifted, scaled, strict=True)]
    return coefficients


def algorithm(tile: Sequence[int], taps: Sequence[int], of_phases: bool = False) -> str:
    """Name in the build report of the algorithm for an output tile and a filter of these sizes."""
    sizes = ",".join("x".join(map(str, each)) for each in (tile, taps))
    return f"winograd F({sizes})" + (" of phases" if of_phases else "")


def combine(row: Sequence[float], read: Callable[[int], Any]) -> Any:
    """sum over j of row[j] * read(j), without the zeros and ones."""
    total = None
    for j, factor in enumerate(row):
        if factor == 0:
            continue
        term = read(j)
        if isinstance(factor, int) and abs(factor) != 1:  # TVM would widen what is of 16 bits
            term = term * tirx.const(abs(factor), term.ty.dtype)
        elif abs(factor) != 1:
            term = term * float(abs(factor))
        if total is None:
            total = term if factor > 0 else -term
        else:
            total = total + term if factor > 0 else total - term
    return total


def times(matrix: Sequence[Sequence[float]], index: Any, read: Callable[[int], Any]) -> Any:
    """An element of the matrix times a vector: sum over j of matrix[index][j] * read(j)."""
    return select(index, [combine(row, read) for row in matrix])


def select(index: Any, values: Sequence[Any]) -> Any:
    """values[index]; the index is constant once the loop is unrolled."""
    result = values[-1]
    for position in range(len(values) - 2, -1, -1):
        result = tirx.Select(index == position, values[position], result)
    return result
