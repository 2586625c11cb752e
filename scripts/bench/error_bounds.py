"""How far algorithms with fewer multiplications may be off in float32, and when they overflow.

With x the operand, w the weight, and K products in each sum, a result is off by at most

    error <= roundings * growth * K * u * max|x| * max|w|,    u = 2^-24

A product that follows the definition has K roundings and a growth of 1, and the maxima are those of
what the one result is made from. Here they are those of all that an algorithm adds up together:
Strassen's two rows of x and two columns of w, the tile of an image and one filter for Winograd's.

`growth * K * max|x| * max|w|` also bounds every intermediate value of the sums, and
`spread * max|x|` what is made of x before them. Neither may exceed the largest float32, or results
are infinite or NaN where the definition's need not be.

Higham, "Accuracy and Stability of Numerical Algorithms" (2002), chapters 3 and 23; Barabasz et al.,
"Error Analysis and Improving the Accuracy of Winograd Convolution" (2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schedules.winograd import Matrix, transform_matrices

UNIT_ROUNDOFF = 2.0**-24
LARGEST = 3.4028234663852886e38


@dataclass(frozen=True)
class Bound:
    """Error bound of one algorithm on one shape."""

    products: int  # in the sum of one result by the definition: K
    roundings: int  # maximum per term of a result
    growth: float  # sum of the magnitudes of all terms, over that of the definition
    spread: float  # largest value that is made from x before it is multiplied, over max|x|

    @property
    def factor(self) -> float:
        """Factor that turns `max|x| * max|w|` into the bound on the error."""
        share = self.roundings * UNIT_ROUNDOFF
        return share / (1 - share) * self.growth * self.products

    def largest_input(self, largest_weight: float) -> float:
        """max|x| up to which nothing overflows."""
        return LARGEST / max(self.spread, self.growth * self.products * largest_weight)


def direct(products: int) -> Bound:
    """Bound of a sequential sum of `products` products."""
    return Bound(products, products, 1.0, 1.0)


def strassen(depth: int) -> Bound:
    """Bound of one level of Strassen's algorithm, on rows of `depth` elements.

    A sum of two elements of x, and of w; half the depth; up to four products. A result is the sum
    of P1, P4, P5 and P7, whose factors are sums of 2 and 2, 1 and 2, 2 and 1, and 2 and 2.
    """
    return Bound(depth, 1 + 1 + -(-depth // 2) + 3, 12 / 2, 2.0)


def winograd(tile: Sequence[int], taps: Sequence[int], channels: int, phases: int = 1) -> Bound:
    """Bound of Winograd with output tiles `tile` and filter size `taps`, along rows and columns.

    `phases`: two per axis with stride 2; `taps` are then those of the first phase.
    """
    sums = channels * phases**2
    products = sums * taps[0] * taps[1]
    roundings, growth, spread = 1 + sums, 1.0, 1.0
    for size, count in zip(tile, taps, strict=True):
        a, b, g = transform_matrices(size, count)
        roundings += _most_terms(a) + _most_terms(b)
        growth *= (
            max(
                sum(abs(factor) * _sum(b[p]) * _sum(g[p]) for p, factor in enumerate(row))
                for row in a
            )
            / count
        )
        spread *= max(map(_sum, b))
    return Bound(products, roundings, growth, spread)


def _sum(row: Sequence[float]) -> float:
    return sum(map(abs, row))


def _most_terms(matrix: Matrix) -> int:
    return max(sum(factor != 0 for factor in row) for row in matrix)
