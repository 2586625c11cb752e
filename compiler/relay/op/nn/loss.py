"""Losses."""

from __future__ import annotations

from tvm import relax

from ..op_def import FUSABLE, NEVER
from ..raising import same_name
from ..registry import operator
from ..shapes import dtype, extents, number
from ..typed_relax import op


def _mean_product(left: relax.Expr, right: relax.Expr) -> relax.Expr:
    """Negative sum of products, divided by the number of rows."""
    total = op.sum(op.multiply(left, right))
    rows = extents(left)[0]
    return op.divide(op.negative(total), number(float(rows), dtype(left)))


@operator("nn.cross_entropy", 2, precision=NEVER)
def cross_entropy(predictions: relax.Expr, targets: relax.Expr) -> relax.Expr:
    """Negative mean over rows of the sum of target * log(prediction)."""
    return _mean_product(op.log(predictions), targets)


@operator("nn.cross_entropy_with_logits", 2, precision=NEVER)
def cross_entropy_with_logits(predictions: relax.Expr, targets: relax.Expr) -> relax.Expr:
    """Negative mean over rows of the sum of target * prediction."""
    return _mean_product(predictions, targets)


@operator("nn.nll_loss", 3, how="direct", pattern=FUSABLE)
def nll_loss(
    predictions: relax.Expr,
    targets: relax.Expr,
    weights: relax.Expr,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> relax.Expr:
    """Negative log likelihood of the target classes, weighted by class."""
    return op.nn.nll_loss(predictions, targets, weights, str(reduction), int(ignore_index))


same_name("nn.nll_loss")
