"""`from_tflite`: a TensorFlow Lite model becomes a Relax module."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import tvm

from compiler.errors import BatonError, FrontendError, UnknownShapeError, UnsupportedOperatorError
from compiler.support import strictness
from compiler.support.regular_files import read_regular


def from_tflite(
    model: Any,
    shape_dict: Mapping[str, tuple[int, ...]] | None = None,
    dtype_dict: Mapping[str, str] | None = None,
    op_converter: Callable[..., Any] | None = None,
) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor]]:
    """Import a TensorFlow Lite model as a Relax module, with TVM's Relax importer.

    Parameters
    ----------
    model : tflite.Model, bytes or path
        The model, as `tflite.Model.GetRootAsModel` makes it, its flatbuffer or its file.
    shape_dict, dtype_dict : mapping of str, optional
        Shapes and dtypes by input name, over the model's own.
    op_converter : class, optional
        In place of `compiler.relay.frontend.tflite.converter.Converter`, a subclass of
        `tvm.relax.frontend.tflite.tflite_frontend.OperatorConverter`.

    Returns
    -------
    mod : tvm.IRModule
        One function, `main`, of the model's inputs. Its weights are constants.
    params : dict
        Empty.

    Raises
    ------
    FrontendError
        The `tflite` package is missing, or the model is damaged.
    UnsupportedOperatorError
        An operator, or a form of it, that the importer lacks; the message names it.
    UnknownShapeError
        A dimension of an input is open and not in `shape_dict`.
    """
    try:
        import tflite
    except ImportError as error:
        raise FrontendError(
            "from_tflite needs the tflite package: pip install 'baton-tvm[tflite]'"
        ) from error
    from tvm.relax.frontend.tflite import tflite_frontend

    from compiler.ir.fold_constants import FoldConstant
    from compiler.relay.relax_to_relay import ImportedModule

    from .converter import Converter

    loaded = model if isinstance(model, tflite.Model) else _read(model, tflite)
    try:
        _check_inputs(loaded, shape_dict or {})
        mod = tflite_frontend.from_tflite(
            loaded,
            dict(shape_dict) if shape_dict else None,
            dict(dtype_dict) if dtype_dict else None,
            op_converter or Converter,
        )
    except BatonError:
        raise
    except NotImplementedError as error:
        raise UnsupportedOperatorError(f"the TFLite model can't be imported: {error}") from error
    except Exception as error:
        # A damaged flatbuffer is wrong in ways that only flatbuffers, numpy or TVM notices.
        reason = (str(error).strip().splitlines() or [""])[0]
        raise FrontendError(
            f"the TFLite model can't be imported: {type(error).__name__}: {reason}"
        ) from error
    mod["main"] = mod["main"].without_attr("params")
    folded = tvm.transform.Sequential([FoldConstant(transpose=False)])(mod)
    return ImportedModule(folded), {}


def _read(model: Any, tflite: Any) -> Any:
    if isinstance(model, (str, os.PathLike)):
        try:
            data = read_regular(model)
        except OSError as error:
            raise FrontendError(f"can't read the TFLite model {model}: {error.strerror}") from error
    elif isinstance(model, (bytes, bytearray)):
        data = bytes(model)
    else:
        raise FrontendError(
            f"from_tflite takes a tflite.Model, bytes or a path, not {type(model).__name__}"
        )
    if len(data) < 8 or not tflite.Model.ModelBufferHasIdentifier(data, 0):
        raise FrontendError("not a TFLite model: its file identifier TFL3 is missing")
    return tflite.Model.GetRootAsModel(data, 0)


def _check_inputs(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    graph = model.Subgraphs(0)
    names = []
    for index in range(graph.InputsLength()):
        tensor = graph.Tensors(graph.Inputs(index))
        name = tensor.Name().decode("utf-8")
        names.append(name)
        signature = [tensor.ShapeSignature(i) for i in range(tensor.ShapeSignatureLength())]
        if -1 in signature and name not in shapes:
            raise UnknownShapeError(
                f"input {name!r} has the shape {signature}, where -1 is open; "
                f"pass it: shape_dict={{{name!r}: (...)}}"
            )
    for name in shapes:
        if name not in names:
            error = FrontendError(
                f"shape_dict names {name!r}, which is not an input; there are {', '.join(names)}"
            )
            strictness.refuse(error, "the shape is ignored")
