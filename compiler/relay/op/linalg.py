"""Matrix operators: diagonals, triangles, einsum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx, topi

from .op_def import ELEMENTWISE, INJECTIVE
from .raising import Definitions, equivalent_call, from_relax
from .registry import builder, operator
from .shapes import integers, tuple_fields
from .te_op import kernel
from .typed_relax import op

_matrix_set_diag = kernel(
    "matrix_set_diag",
    lambda data, diagonal, k1, k2, super_diag_right_align, sub_diag_right_align: (
        topi.matrix_set_diag(
            data, diagonal, (k1, k2), _align(super_diag_right_align, sub_diag_right_align)
        )
    ),
)


def _align(above: bool, below: bool) -> str:
    return "_".join("RIGHT" if right else "LEFT" for right in (above, below))


@builder("matrix_set_diag")
def matrix_set_diag(
    data: relax.Expr, diagonal: relax.Expr, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT"
) -> relax.Expr:
    """Replace one diagonal of matrices, or the diagonals k[0] to k[1]."""
    low, high = integers(k, 2)[0], integers(k, 2)[-1]
    above, _, below = align.partition("_")
    return _set_diagonals(data, diagonal, low, high, above == "RIGHT", below == "RIGHT")


@operator("matrix_set_diag", 2, how="TOPI", pattern=INJECTIVE)
def _set_diagonals(
    data: relax.Expr,
    diagonal: relax.Expr,
    k1: int = 0,
    k2: int = 0,
    super_diag_right_align: bool = True,
    sub_diag_right_align: bool = False,
) -> relax.Expr:
    """Replace the diagonals k1 to k2 of matrices."""
    return _matrix_set_diag(
        data,
        diagonal,
        k1=int(k1),
        k2=int(k2),
        super_diag_right_align=bool(super_diag_right_align),
        sub_diag_right_align=bool(sub_diag_right_align),
    )


def _triangle(data: te.Tensor, k: te.Tensor, upper: bool) -> te.Tensor:
    """Set matrix elements below (or above) the k-th diagonal to zero."""

    def value(*at: Any) -> Any:
        offset = at[-1].astype("int64") - at[-2].astype("int64")
        diagonal = k().astype("int64")
        kept = offset >= diagonal if upper else offset <= diagonal
        return tirx.Select(kept, data(*at), tirx.const(0, data.dtype))

    return te.compute(data.shape, value, name="trilu", tag=topi.tag.INJECTIVE)


_triangle_kernel = kernel("trilu", _triangle)


@operator("trilu", 2, how="TE", pattern=ELEMENTWISE)
def trilu(data: relax.Expr, k: Any, upper: bool = True) -> relax.Expr:
    """Upper (or lower) triangle of matrices, starting at the k-th diagonal."""
    diagonal = k if isinstance(k, relax.Expr) else relax.const(k, "int64")
    return _triangle_kernel(data, op.reshape(diagonal, []), upper=bool(upper))


@operator("einsum", how="direct", pattern=INJECTIVE)
def einsum(data: relax.Expr, equation: str) -> relax.Expr:
    """Einstein summation."""
    return op.einsum(tuple_fields(data), str(equation))


@from_relax("einsum")
def _einsum_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    return equivalent_call("einsum", call.args, call, equation=str(call.attrs.subscripts))
