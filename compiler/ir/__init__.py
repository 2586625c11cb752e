"""Target-independent passes over Relax functions, one pass per file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm


def simplify_passes() -> list[tvm.transform.Pass]:
    """The passes that the build runs first, in their order.

    Run them in a `tvm.transform.Sequential`, so that the `opt_level` and `disabled_pass` of the
    active `PassContext` apply to each: SimplifyExpr, RecognizeGelu, FoldExplicitPadding,
    SimplifyInference (level 0), RecognizeLayerNorm, RecognizeSilu (1), FoldConstant (2),
    FoldScaleAxis (3).
    """
    from .fold_constants import FoldConstant
    from .fold_explicit_padding import FoldExplicitPadding
    from .fold_scale_axis import FoldScaleAxis
    from .recognize_activations import RecognizeGelu, RecognizeSilu
    from .recognize_layer_norm import RecognizeLayerNorm
    from .simplify import SimplifyExpr
    from .simplify_inference import SimplifyInference

    return [
        FoldConstant(),
        SimplifyExpr(),
        RecognizeLayerNorm(),
        RecognizeGelu(),
        RecognizeSilu(),
        FoldExplicitPadding(),
        SimplifyInference(),
        FoldScaleAxis(),
        FoldConstant(),
        SimplifyExpr(),
    ]
