"""`from_onnx`: an ONNX model becomes a Relay module, and its parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tvm

if TYPE_CHECKING:
    import onnx

    from ..import_limits import ImportLimits
    from .graph import Converter
    from .model import Extent


def from_onnx(
    model: onnx.ModelProto | str | os.PathLike[str] | bytes,
    shape: Mapping[str, Sequence[Extent]] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Mapping[str, Any] | None = None,
    export_node_renamed_model_path: str | os.PathLike[str] | None = None,
    limits: ImportLimits | None = None,
) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor]]:
    """Import an ONNX model as a module of Relay's operators.

    The operators are converted by TVM's Relax importer and, where real exports need more than it
    does, by the converters of `ops`, and spelled as Relay's importer did: a bias is `nn.bias_add`,
    a Gemm `nn.dense`; operators that Relay lacks stay Relax operators. Values that depend only on
    constants and static shapes are computed here, so that no shape arithmetic is left in the
    module. Layer norms, GELUs and SiLUs that the exporter decomposed are recognized and written
    in one form. Batch norms stay operators until the build folds them.

    Parameters
    ----------
    model
        A `ModelProto`, the serialized bytes of one, or the path of a file. Weights that the file
        keeps in other files are read from the file's own folder.
    shape
        Input name to shape, which overrides the model's. A dimension is a number, a name, None or
        `relay.Any()`. Names are dynamic dimensions: equal names are equal sizes, which a library
        checks when it is called. Without a shape, an input keeps the shape that the model
        declares; dynamic dimensions without a name are called `<input>_<axis>`. A number for a
        dimension that the model names applies to all inputs with that name.
    dtype
        Input name to dtype, to override the model's own. A single string is accepted as Relay
        did and has no effect: every ONNX input declares its type.
    opset
        Version of the default operator set, to override the model's own.
    freeze_params
        True: weights are constants of the module and the returned dict is empty. False: each
        weight is a trailing parameter of `main`, under its ONNX name, and its value is in the
        dict. Integers of 32 and 64 bits, booleans and single values are no weights but part of
        the computation (shapes, axes, indices, bounds) and stay constants either way.
    convert_config
        No effect: it selected forms of matmuls, which the build selects itself.
    export_node_renamed_model_path
        Folder for a copy of the model in which each node has a name, as `node_names` gives it.
    limits
        Budgets of nodes, folded bytes and seconds; the defaults of `ImportLimits` if omitted.

    Returns
    -------
    mod : tvm.IRModule
        One function, `main`: the ONNX inputs in their order and under their names, then the
        weights if not frozen; the body is one dataflow block.
    params : dict of str to tvm.runtime.Tensor
        Values of the weights that are parameters.

    Raises
    ------
    FrontendError
        The file is not ONNX, is truncated, contradicts itself or has an unknown operator set.
    ImportLimitError
        The import exceeds `limits`, or a tensor is larger than any machine's memory.
    UnsupportedOperatorError
        An operator, or a form of one, can't be converted; the message names its type, domain
        and node.
    UnknownShapeError
        An input has no rank, neither in the model nor in `shape`, or a dimension is invalid.
    """
    from compiler.relay.relax_to_relay import ImportedModule

    del convert_config
    if export_node_renamed_model_path is not None:
        from .node_names import save_with_names

        save_with_names(model, export_node_renamed_model_path)
    mod, params = import_model(model, shape or {}, dtype, opset, freeze_params, {}, limits=limits)
    return ImportedModule(mod), params


def import_model(
    model: onnx.ModelProto | str | os.PathLike[str] | bytes,
    shape: Mapping[str, Sequence[Extent]],
    dtype: str | Mapping[str, str],
    opset: int | None,
    freeze_params: bool,
    converters: Mapping[tuple[str, str], Converter],
    short: bool = False,
    limits: ImportLimits | None = None,
) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor]]:
    """`from_onnx`, with Relax's operators, and converters for operators of the caller's own.

    With `short`, spans of operands name them by the last part of their names.
    """
    from compiler.errors import BatonError, FrontendError
    from compiler.ir.fold_constants import FoldConstant
    from compiler.ir.recognize_activations import RecognizeGelu, RecognizeSilu
    from compiler.ir.recognize_layer_norm import RecognizeLayerNorm

    from .graph import GraphImporter
    from .model import load_model, resolve_inputs, resolve_opsets
    from .node_names import spans_of_operands

    try:
        loaded = load_model(model)
        opsets = resolve_opsets(loaded.proto, opset)
        inputs = resolve_inputs(loaded.proto.graph, shape, dtype)
        spans = spans_of_operands(loaded.proto.graph, short)
        importer = GraphImporter(loaded, opsets, freeze_params, converters, spans, limits)
        module, params = importer.run(inputs)
    except BatonError:
        raise
    except Exception as error:
        # A damaged model can be wrong in ways that only protobuf, onnx or TVM notices: a name
        # that is not UTF-8, an operator set without operators, a dtype of half a byte.
        reason = (str(error).strip().splitlines() or [""])[-1]
        raise FrontendError(
            f"the ONNX model can't be imported: {type(error).__name__}: {reason}"
        ) from error
    passes = [FoldConstant(transpose=False), RecognizeLayerNorm(), RecognizeGelu(), RecognizeSilu()]
    return tvm.transform.Sequential(passes)(module), params
