"""`relay.transform`: Relay's passes by their names, over Relax modules of Relay's operators."""

from __future__ import annotations

from typing import Any

from ...errors import UnsupportedRelayOperatorError
from ...lazy import lazy_attributes

_WHERE = {
    "byoc": "AnnotateTarget MergeCompilerRegions MergeComposite PartitionGraph",
    "combine": "BatchingOps CombineParallelBatchMatmul CombineParallelConv2D CombineParallelDense",
    "inference": "SimplifyInference",
    "layout": "ConvertLayout",
    "precision": "ToMixedPrecision register_mixed_precision_conversion",
    "scale_axis": "BackwardFoldScaleAxis FoldScaleAxis ForwardFoldScaleAxis",
    "simplify": "CanonicalizeOps DefuseOps DivToMul DynamicToStatic EliminateCommonSubexpr "
    "FastMath FoldConstant FoldConstantExpr SimplifyExpr",
    "structure": "AlterOpLayout DeadCodeElimination FuseOps InferType InferTypeLocal Inline "
    "LambdaLift Legalize RemoveUnusedFunctions ToANormalForm ToBasicBlockNormalForm "
    "ToGraphNormalForm function_pass lower_qnn",
}

_MISSING = {
    "gradient": "Relax differentiates dataflow functions: tvm.relax.transform.Gradient",
    "FirstOrderGradient": "Relax differentiates dataflow functions: tvm.relax.transform.Gradient",
    "PlanDevices": "partitioned functions carry their own target; the build copies between devices",
    "Defunctionalization": "functions as values are evaluated when a program is read",
    "EtaExpand": "functions as values are evaluated when a program is read",
    "PartialEvaluate": "functions as values are evaluated when a program is read",
    "ToCPS": "Relax has no continuation-passing form",
    "FakeQuantizationToInteger": "quantized regions are built as they are written",
    "CanonicalizeCast": "fusion puts casts into the kernels that read them",
}

_lazy = lazy_attributes(
    __name__, {name: f".{module}" for module, names in _WHERE.items() for name in names.split()}
)


def __getattr__(name: str) -> Any:
    if name in _MISSING:
        raise UnsupportedRelayOperatorError(
            f"relay.transform.{name} is not supported: {_MISSING[name]}"
        )
    return _lazy(name)
