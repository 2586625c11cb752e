"""`relay.transform`: Relay's passes for Relax modules with Relay operators."""

from __future__ import annotations

from typing import Any

from ...errors import UnsupportedRelayOperatorError
from ...support.lazy_import import lazy_attributes

_WHERE = {
    "byoc": "AnnotateTarget MergeCompilerRegions MergeComposite PartitionGraph",
    "combine": "BatchingOps CombineParallelBatchMatmul CombineParallelConv2D CombineParallelDense",
    "constants": "FoldConstant FoldConstantExpr",
    "derivative": "FirstOrderGradient LazyGradientInit gradient",
    "fake_quantization_to_integer": "FakeQuantizationToInteger fake_quantization_to_integer",
    "layout": "AlterOpLayout ConvertLayout LayoutConfig",
    "parameters": "ChangeBatch SimplifyFCTranspose SplitArgs",
    "mixed_precision": "ToMixedPrecision mixed_precision register_mixed_precision_conversion",
    "shared_rules": "BackwardFoldScaleAxis FlattenAtrousConv FoldExplicitPadding FoldScaleAxis "
    "ForwardFoldScaleAxis SimplifyInference",
    "fuse_ops": "CanonicalizeCast DefuseOps FuseOps",
    "simplify": "CanonicalizeOps DivToMul DynamicToStatic EliminateCommonSubexpr "
    "FastMath SimplifyExpr",
    "structure": "AnnotateSpans DeadCodeElimination InferType InferTypeLocal Inline "
    "LambdaLift Legalize PartialEvaluate RemoveUnusedFunctions ToANormalForm ToANormalFormExpr "
    "ToBasicBlockNormalForm ToGraphNormalForm build_config function_pass",
}

_MISSING = {
    "PlanDevices": "partitioned functions carry their own target; the build copies between devices",
    "CapturePostDfsIndexInSpans": "Relax expressions keep the spans they were made with",
    "CollagePartition": "compiler.legacy.install() adds it",
    "Conv2dToSparse": "build the dense model",
    "Conv2dToSparse2": "build the dense model",
    "Defunctionalization": "functions as values are evaluated when a program is read",
    "DenseToSparse": "call relay.nn.sparse_dense with the weight's parts, or build the dense model",
    "EtaExpand": "functions as values are evaluated when a program is read",
    "FunctionPass": "make passes with relay.transform.function_pass",
    "InlineCompilerFunctionsBoundTo": "functions of other compilers are called, never inlined",
    "ManifestLifetimes": "the build plans memory itself: tvm.relax.transform.StaticPlanBlockMemory",
    "MarkCompilerFunctionsAsExtern": "relay.build compiles functions of other compilers in place",
    "OutlineCompilerFunctionsWithExistingGlobalSymbols": (
        "relay.transform.PartitionGraph outlines the regions of other compilers"
    ),
    "ToCPS": "Relax has no continuation-passing form",
    "to_cps": "Relax has no continuation-passing form",
    "un_cps": "Relax has no continuation-passing form",
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
