"""The steps of `quantize`:

    prerequisite_optimize   bind parameters, fold batch norms into weights
    annotate                wrap data and weights of convolutions and dense layers in
                            dequantize(quantize(x, scale)), data for all its consumers; the scale
                            is still NaN
    calibrate               compute scales, from the configuration or from samples
    realize                 convert weights to int8

CPU builds compute the result on integers (`lowering/graph_passes`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...errors import RelayError
from ...ir.constants import array_of
from ...ir.rewrite import operator_name
from ..function import bind_params_by_name
from ..nested_expressions import handle, nested, operands, post_order, rewrite, with_operands
from ..relay_to_relax import function_of
from ..transform.base import module_pass, with_functions
from ..transform.build import is_op
from ..type_infer import infer_type
from .config import QConfig, current_qconfig
from .partition import partition_conversions
from .ranges import LEVELS, Histogram

logger = logging.getLogger("baton.quantize")

Samples = Iterable[Mapping[str, Any]]


def quantize(
    mod: tvm.IRModule, params: Mapping[str, Any] | None = None, dataset: Samples | None = None
) -> tvm.IRModule:
    """Quantize a float network to int8 according to the active `qconfig`.

    Parameters
    ----------
    mod : tvm.IRModule
        Module with Relay operators; the types of inputs and results do not change.
    params : dict of str to array, optional
        Values of weights that are parameters of `main`.
    dataset : iterable of dict of str to array, optional
        Inputs by name; required except for "global_scale".

    Raises
    ------
    RelayError
        The mode requires samples and there are none, or a tensor is not finite for a sample, or
        "fully_integral" partitioning finds float operators between the conversions.
    """
    config = current_qconfig()
    mod = _annotate(prerequisite_optimize(mod, params), config)
    mod = _calibrate(mod, config, dataset)
    if config.do_simulation:
        return mod
    mod = _realize(mod, config)
    if config.partition_conversions == "disabled":
        return mod
    return partition_conversions(mod, config.partition_conversions == "fully_integral")


def prerequisite_optimize(
    mod: tvm.IRModule, params: Mapping[str, Any] | None = None
) -> tvm.IRModule:
    """Prepare a module for `annotate`: bind weights, fold scales and batch norms."""
    from .. import transform

    if params:
        mod = with_functions(
            mod, {mod.get_global_var("main"): bind_params_by_name(mod["main"], params)}
        )
    steps = [
        transform.SimplifyInference(),
        transform.FoldConstant(),
        transform.FoldScaleAxis(),
        transform.CanonicalizeOps(),
        transform.FoldConstant(),
    ]
    with tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(steps)(mod)


def annotate() -> Any:
    """Create the pass that quantizes the operands of layers."""
    config = current_qconfig()
    return module_pass("QuantizeAnnotate", 0, lambda mod: _annotate(mod, config))


def calibrate(dataset: Samples | None = None) -> Any:
    """Create the pass that computes scales."""
    config = current_qconfig()
    return module_pass("QuantizeCalibrate", 0, lambda mod: _calibrate(mod, config, dataset))


def realize() -> Any:
    """Create the pass that converts weights to int8."""
    config = current_qconfig()
    return module_pass("QuantizeRealize", 0, lambda mod: _realize(mod, config))


def _with_main(mod: tvm.IRModule, body: relax.Expr) -> tvm.IRModule:
    main = mod["main"]
    made = function_of(main.params, body, main.attrs)
    return with_functions(mod, {mod.get_global_var("main"): made})


# --- annotate ----------------------------------------------------------------------------


def _annotate(mod: tvm.IRModule, config: QConfig) -> tvm.IRModule:
    body = nested(mod["main"])
    layers = _layers(body, config)
    read = {handle(layer.args[0]) for layer in layers}
    chosen = {handle(layer) for layer in layers}

    def change(old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if handle(old) in chosen:
            data, weight, *others = operands(new)
            new = with_operands(new, [data, _pair(weight, math.nan), *others])
        return _pair(new, math.nan) if handle(old) in read else new

    return _with_main(mod, rewrite(body, change))


def _layers(body: relax.Expr, config: QConfig) -> list[relax.Call]:
    """Convolutions and dense layers with constant weights, without those to be skipped."""
    layers, convolutions = [], 0
    for node in post_order(body):
        is_conv = is_op(node, "nn.conv2d")
        skipped = (
            convolutions in (config.skip_conv_layers or ()) if is_conv else config.skip_dense_layer
        )
        convolutions += is_conv
        if not (is_conv or is_op(node, "nn.dense")) or skipped:
            continue
        data, weight = node.args[:2]
        if array_of(weight) is None or array_of(data) is not None:
            continue
        if {str(each.ty.dtype) for each in (data, weight)} == {"float32"}:
            layers.append(node)
    return layers


def _pair(expr: relax.Expr, scale: float) -> relax.Expr:
    """Create dequantize(quantize(expr)); NaN is a scale that is not calibrated yet."""
    return _dequantized(infer_type(relax.op.quantize(expr, *_numbers(scale), 0, "int8")), scale)


def _dequantized(integers: relax.Expr, scale: float) -> relax.Expr:
    return infer_type(relax.op.dequantize(integers, *_numbers(scale), 0, "float32"))


def _numbers(scale: float) -> tuple[relax.Expr, relax.Expr]:
    return relax.const(np.float32(scale)), relax.const(np.int8(0))


def _paired(expr: relax.Expr) -> relax.Expr | None:
    """Operand of the quantize of a pair; None if the expression is not a pair."""
    if operator_name(expr) != "dequantize" or operator_name(expr.args[0]) != "quantize":
        return None
    return expr.args[0].args[0]


def _scale(pair: relax.Expr) -> float:
    known = array_of(pair.args[1])
    return math.nan if known is None or known.size != 1 else float(known.reshape(()))


# --- calibrate ---------------------------------------------------------------------------


def _calibrate(mod: tvm.IRModule, config: QConfig, samples: Samples | None) -> tvm.IRModule:
    body = nested(mod["main"])
    pairs = [
        each for each in post_order(body) if _paired(each) is not None and math.isnan(_scale(each))
    ]
    data = [each for each in pairs if array_of(_paired(each)) is None]
    thresholds = _thresholds(mod["main"], data, config, samples)
    scales = {handle(each): _weight_scale(array_of(_paired(each)), config) for each in pairs}
    levels = LEVELS >> (8 - config.nbit_input)
    inputs = {handle(each): most / levels for each, most in zip(data, thresholds, strict=True)}
    scales |= inputs

    def change(old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if handle(old) not in scales:
            return new
        operand, scale = _paired(new), scales[handle(old)]
        if levels < LEVELS and handle(old) in inputs:
            most = (levels - 1) * scale
            operand = infer_type(relax.op.clip(operand, -most, most))
        return _pair(operand, scale)

    return _with_main(mod, rewrite(body, change))


def _weight_scale(weight: np.ndarray | None, config: QConfig) -> float:
    largest = float(np.abs(weight).max(initial=0)) if weight is not None else 0.0
    largest = largest or 1.0
    if not math.isfinite(largest):
        raise RelayError("a weight that is to be quantized has elements that are not finite")
    if config.weight_scale == "power2":
        largest = 2.0 ** math.ceil(math.log2(largest))
    return largest / _levels(config)


def _levels(config: QConfig) -> int:
    """Number of magnitudes of the weights' integer type."""
    return LEVELS >> (8 - config.nbit_weight)


def _thresholds(
    function: relax.Function, pairs: list[relax.Expr], config: QConfig, samples: Samples | None
) -> list[float]:
    """Largest magnitude that each pair must represent."""
    if config.calibrate_mode == "global_scale" or not pairs:
        return [config.global_scale] * len(pairs)
    if samples is None:
        raise RelayError(
            f'calibrate_mode "{config.calibrate_mode}" needs samples: give quantize a dataset, an '
            "iterable of dicts of arrays by the inputs' names"
        )
    histograms = _histograms(function, pairs, samples)
    if config.calibrate_mode == "percentile":
        return [each.percentile() for each in histograms]
    return [each.least_divergence() for each in histograms]


def _histograms(
    function: relax.Function, pairs: list[relax.Expr], samples: Samples
) -> list[Histogram]:
    """Histograms of the pairs' operands over all samples, computed in float32."""
    from ...runtime import graph_executor
    from ..build_module import build

    bodies = relax.Tuple([_paired(each) for each in pairs])
    plain = rewrite(bodies, lambda _, new: new if _paired(new) is None else _paired(new))
    mod = tvm.IRModule({"main": function_of(function.params, infer_type(plain), function.attrs)})
    with tvm.transform.PassContext(opt_level=3):
        library = build(mod, "llvm")
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    histograms = [Histogram(f"tensor {index} of the network") for index in range(len(pairs))]
    read = {each.name: each.dtype for each in library.metadata.inputs}
    names = {str(param.name) for param in function.params}
    for sample in samples:
        for name in sample.keys() - names:
            logger.warning("a sample has %r, which is not an input; it is ignored", name)
        if not read.keys() <= sample.keys():
            raise RelayError(
                f"a sample has {', '.join(map(repr, sample)) or 'nothing'}; the network reads "
                f"{', '.join(map(repr, read))}"
            )
        executor.run(**{name: np.asarray(sample[name], dtype) for name, dtype in read.items()})
        for index, histogram in enumerate(histograms):
            histogram.add(executor.get_output(index).numpy())
    return histograms


# --- realize -----------------------------------------------------------------------------


def _realize(mod: tvm.IRModule, config: QConfig) -> tvm.IRModule:
    levels = _levels(config)

    def change(_: relax.Expr, new: relax.Expr) -> relax.Expr:
        inner = _paired(new)
        if inner is None:
            return new
        scale = _scale(new)
        if not 0 < scale < math.inf:
            raise RelayError(f"a tensor has the scale {scale}: calibrate before realize")
        weight = array_of(inner)
        if weight is None:
            return new
        steps = np.clip(np.rint(weight / np.float32(scale)), -levels, levels - 1)
        return _dequantized(relax.const(steps.astype("int8")), scale)

    return _with_main(mod, rewrite(nested(mod["main"]), change))
