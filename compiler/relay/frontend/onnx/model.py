"""Reading an ONNX model: its bytes, its operator sets and the types of its inputs."""

from __future__ import annotations

import contextlib
import logging
import math
import mmap
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import onnx
import onnx.numpy_helper
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from compiler.errors import (
    FrontendError,
    UnknownInputError,
    UnknownShapeError,
    UnsupportedOperatorError,
)
from compiler.ir.constants import NUMPY_DTYPES
from compiler.relay.ty import is_any
from compiler.support import strictness
from compiler.support.regular_files import foreign_kind, memory_nbytes, open_inside, open_regular

from .node_order import sorted_model
from .protobuf_reader import WireError, split_weights

logger = logging.getLogger("baton.relay")

Extent: TypeAlias = Any
"""An int, the name of a dynamic extent, or None or `relay.Any()` for an unnamed one."""


@dataclass(frozen=True)
class InputType:
    """Name, shape and dtype of a graph input; extents of one name are equal when the model runs."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    sequence: str = ""
    """The sequence that it is a tensor of, if it is of one."""


@dataclass(frozen=True)
class Model:
    """A model in memory: `weights` are the raw data of initializers that `proto` lacks, by name."""

    proto: onnx.ModelProto
    weights: Mapping[str, memoryview]

    def array(self, tensor: onnx.TensorProto) -> np.ndarray:
        """Values of an initializer of the main graph; FrontendError if the data are damaged.

        Tensors of inner graphs, which may have the same names, are read with `tensor_array`.
        """
        raw = self.weights.get(tensor.name)
        if raw is None or tensor.HasField("raw_data"):
            return tensor_array(tensor)
        dtype = tensor_dtype(tensor.data_type, f"initializer {tensor.name!r}")
        if dtype not in NUMPY_DTYPES:
            whole = onnx.TensorProto()
            whole.CopyFrom(tensor)
            whole.raw_data = bytes(raw)
            return tensor_array(whole)
        expected = math.prod(tensor.dims) * np.dtype(dtype).itemsize
        if len(raw) != expected:
            raise FrontendError(
                f"initializer {tensor.name!r} of dimensions {list(tensor.dims)} and dtype {dtype} "
                f"is damaged: it has {len(raw)} bytes, not {expected}"
            )
        return np.frombuffer(raw, dtype).reshape(tuple(tensor.dims))


def tensor_array(tensor: onnx.TensorProto) -> np.ndarray:
    """The values of an ONNX tensor; FrontendError if they are damaged or lie in another file."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:  # ONNX reads the current folder's
        raise _elsewhere(tensor)
    try:
        return onnx.numpy_helper.to_array(tensor).reshape(tuple(tensor.dims))
    except (ValueError, TypeError, KeyError) as error:
        raise FrontendError(
            f"tensor {tensor.name!r} of dimensions {list(tensor.dims)} is damaged: {error}"
        ) from error


def dense_array(sparse: onnx.SparseTensorProto) -> np.ndarray:
    """The values of a sparse ONNX tensor in a dense array; FrontendError if they are damaged."""
    values, indices = tensor_array(sparse.values), tensor_array(sparse.indices)
    try:
        array = np.zeros(tuple(sparse.dims), values.dtype)
        if indices.ndim == 2:  # coordinates; otherwise positions in the flattened tensor
            array[tuple(indices.T)] = values
        else:
            array.reshape(-1)[indices] = values
    except (ValueError, IndexError, TypeError) as error:
        raise FrontendError(
            f"sparse tensor {sparse.values.name!r} of dimensions {list(sparse.dims)} is damaged: "
            f"{error}"
        ) from error
    return array


def load_model(source: onnx.ModelProto | str | os.PathLike[str] | bytes) -> Model:
    """Return the model with its nodes sorted, and all weights in memory or mapped from its file.

    Raises FrontendError if the file can't be read, is not ONNX or is truncated, or if its weights
    lie outside the file's folder or are missing.
    """
    if isinstance(source, onnx.ModelProto):
        return _complete(Model(source, {}), "the ModelProto", None)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _complete(_parse(memoryview(source), "the given bytes"), "the given bytes", None)
    if not isinstance(source, (str, os.PathLike)):
        raise FrontendError(
            f"from_onnx takes a ModelProto, a path or bytes, not {type(source).__name__}"
        )
    path = pathlib.Path(source)
    return _complete(_read(path), str(path), path.parent)


def _read(path: pathlib.Path) -> Model:
    """A model without what lies in other files."""
    try:
        with open_regular(path) as file:
            empty = os.fstat(file.fileno()).st_size == 0
            data = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise FrontendError(f"can't read the ONNX model {path}: {error.strerror}") from error
    return _parse(memoryview(data), str(path))


def _parse(data: memoryview, origin: str) -> Model:
    if not len(data):
        raise FrontendError(f"{origin} is not an ONNX model: it is empty")
    try:
        small, weights = split_weights(data)
        proto = onnx.ModelProto.FromString(small)
    except (WireError, DecodeError) as error:
        if kind := foreign_kind(bytes(data[:64])):
            raise FrontendError(f"{origin} is not an ONNX model: it is {kind}") from error
        raise FrontendError(
            f"{origin} ({len(data)} bytes) is not an ONNX model, or is truncated: {error}"
        ) from error
    return Model(proto, weights)


def _complete(model: Model, origin: str, folder: pathlib.Path | None) -> Model:
    """Load external weights from `folder`, and log what ONNX's checker has to say."""
    graph = model.proto.graph
    if not model.proto.HasField("graph") or not graph.output:
        raise FrontendError(f"{origin} is not an ONNX model: it has no graph with outputs")
    for tensor in _tensors(model.proto):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        if folder is None:
            raise _elsewhere(tensor)
        try:
            with _open_external_data(tensor, folder) as (file, length):
                tensor.raw_data = file.read(length)
        except (OSError, ValueError, MemoryError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FrontendError(
                f"the external weights of {origin} can't be loaded: weight {tensor.name!r}: "
                f"{reason}"
            ) from error
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    model = Model(sorted_model(model.proto), model.weights)
    _log_checker_findings(model.proto, origin)
    return model


def require_external_files(proto: onnx.ModelProto, folder: pathlib.Path) -> None:
    """Raise OSError or ValueError unless external weights are in regular files, whole."""
    for tensor in _tensors(proto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            with _open_external_data(tensor, folder):
                pass


@contextlib.contextmanager
def _open_external_data(
    tensor: onnx.TensorProto, folder: pathlib.Path
) -> Iterator[tuple[BinaryIO, int]]:
    """Open a tensor's data, with length; OSError or ValueError unless in a file below `folder`."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    with open_inside(folder, entries.get("location", "")) as file:
        size = os.fstat(file.fileno()).st_size
        offset = int(entries.get("offset") or 0)
        length = int(entries.get("length") or size - offset)
        if offset < 0 or length < 0 or length > size - offset:
            raise ValueError(
                f"it declares {length} bytes at offset {offset}, and {file.name} has {size}"
            )
        if length > memory_nbytes():
            raise ValueError(f"its {length} bytes are more than the memory of this machine")
        file.seek(offset)
        yield file, length


def data_files(path: pathlib.Path) -> list[pathlib.Path]:
    """The other files in which an ONNX file's weights lie; FrontendError as `load_model`."""
    found = {
        str(entry.value)
        for tensor in _tensors(_read(path).proto)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return [path.parent / name for name in sorted(found)]


def _elsewhere(tensor: onnx.TensorProto) -> FrontendError:
    return FrontendError(
        f"the weight {tensor.name!r} lies in another file; pass the path of the model, "
        "or load its external data first"
    )


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All tensors of a model: initializers and attributes, inner graphs' and functions' too."""
    for holder in (proto.graph, *proto.functions):
        yield from _tensors_of(holder)


def _tensors_of(holder: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    if isinstance(holder, onnx.GraphProto):
        yield from holder.initializer
        for sparse in holder.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in holder.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            for graph in (attribute.g, *attribute.graphs):
                yield from _tensors_of(graph)


def _log_checker_findings(proto: onnx.ModelProto, origin: str) -> None:
    """Run ONNX's checker on the model without its weights.

    The checker is stricter than importers need to be, so that a finding is only a warning; and
    it serializes what it checks, so that it gets the weights' types as inputs and not the weights.
    """
    light = onnx.ModelProto()
    light.ir_version = proto.ir_version
    light.opset_import.extend(proto.opset_import)
    light.functions.extend(proto.functions)
    light.graph.name = proto.graph.name or "graph"
    light.graph.node.extend(proto.graph.node)
    light.graph.input.extend(proto.graph.input)
    light.graph.output.extend(proto.graph.output)
    known = {value.name for value in proto.graph.input}
    for tensor in proto.graph.initializer:
        if tensor.name not in known:
            light.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    try:
        onnx.checker.check_model(light)
    except (onnx.checker.ValidationError, ValueError) as error:
        logger.warning("%s: ONNX's checker complains: %s", origin, error)


def resolve_opsets(proto: onnx.ModelProto, override: int | None) -> dict[str, int]:
    """Opsets by domain ("" is ONNX's own); FrontendError if the installed ONNX lacks one."""
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if not 1 <= entry.version < 1 << 31:
            raise FrontendError(
                f"opset {entry.version} of domain {entry.domain!r} is not supported: "
                "it is not a version number; the model may be damaged"
            )
        opsets[domain] = max(entry.version, opsets.get(domain, 0))
    if override is not None:
        opsets[""] = override
    version = opsets.setdefault("", 1)
    newest = onnx.defs.onnx_opset_version()
    if not 1 <= version <= newest:
        raise FrontendError(
            f"opset {version} is not supported: the installed onnx {onnx.__version__} knows "
            f"1 to {newest}; export the model with another opset or upgrade onnx"
        )
    return opsets


def resolve_inputs(
    graph: onnx.GraphProto, shapes: Mapping[str, Sequence[Extent]], dtypes: str | Mapping[str, str]
) -> list[InputType]:
    """Types of the inputs that are not initializers, in the model's order.

    A name of the model's for an extent keeps its meaning: a number that `shapes` gives for one
    input holds for the others that have the name. Raises UnknownInputError for names that are not
    inputs (only a warning while old scripts run), FrontendError for a shape of the wrong rank,
    UnknownShapeError for an unknown rank, and UnsupportedOperatorError for a map, a string tensor,
    and a sequence or an optional value whose content `shapes` does not give.
    """
    weights = {tensor.name for tensor in graph.initializer}
    weights.update(tensor.values.name for tensor in graph.sparse_initializer)
    values = [value for value in graph.input if value.name not in weights]
    names = [value.name for value in values]
    overrides = dtypes if isinstance(dtypes, Mapping) else {}
    for option, given in (("shape", shapes), ("dtype", overrides)):
        for name in given:
            if name not in names and name not in weights:
                error = UnknownInputError(
                    f"a {option} is given for {name!r}, which is not an input of the model; "
                    f"its inputs are {', '.join(map(repr, names))}"
                )
                strictness.refuse(error, f"the {option} is ignored")
    tensors = [value for value in values if value.type.WhichOneof("value") == "tensor_type"]
    declared = {value.name: _declared(value) for value in tensors}
    named = _numbers_of_names(declared, {k: v for k, v in shapes.items() if k in declared})
    types = []
    for value in values:
        if value.name not in declared:
            types += _of_container(value, shapes)
            continue
        dtype = _dtype(value)
        if value.name in shapes:
            shape = _given(value.name, declared[value.name], shapes[value.name])
        else:
            shape = _open(value.name, declared[value.name], named)
        types.append(InputType(value.name, shape, overrides.get(value.name) or dtype))
    return types


def _of_container(
    value: onnx.ValueInfoProto, shapes: Mapping[str, Sequence[Extent]]
) -> list[InputType]:
    """The tensors of a sequence, or of an optional value, of known number and ranks."""
    name, kind, inner = value.name, value.type.WhichOneof("value"), value.type
    if kind == "optional_type":
        inner = inner.optional_type.elem_type
    is_sequence = inner.WhichOneof("value") == "sequence_type"
    if is_sequence:
        inner = inner.sequence_type.elem_type
    what = f"input {name!r} is a {str(kind).removesuffix('_type')}"
    if inner.WhichOneof("value") != "tensor_type":
        raise UnsupportedOperatorError(f"{what}; only tensors and sequences of them can be inputs")
    given = shapes.get(name)
    if name not in shapes or (given is None and kind != "optional_type"):
        raise UnsupportedOperatorError(
            f"{what}, and what there is of it must be known: give its shape, "
            f"{{{name!r}: [(2, 3), (4,)]}} of a sequence of two tensors, None of no value"
        )
    if given is None:
        return []
    dtype = tensor_dtype(inner.tensor_type.elem_type, f"input {name!r}")
    refuse_narrow(dtype, f"input {name!r}")
    if not is_sequence:
        return [InputType(name, _given(name, None, given), dtype)]
    members = ((f"{name}_{index}", each) for index, each in enumerate(given))
    return [InputType(own, _given(own, None, each), dtype, name) for own, each in members]


def _dtype(value: onnx.ValueInfoProto) -> str:
    kind = value.type.WhichOneof("value")
    elem_type = value.type.tensor_type.elem_type
    if kind != "tensor_type" or elem_type == onnx.TensorProto.STRING:
        what = "tensor of strings" if kind == "tensor_type" else str(kind).removesuffix("_type")
        raise UnsupportedOperatorError(
            f"input {value.name!r} is a {what}; only numeric tensors can be inputs"
        )
    dtype = tensor_dtype(elem_type, f"input {value.name!r}")
    refuse_narrow(dtype, f"input {value.name!r}")
    return dtype


def refuse_narrow(dtype: str, what: str) -> None:
    """Raise UnsupportedOperatorError about `what` for dtypes below a byte and 8-bit floats.

    There are no tensors of the former, and TVM converts the latter without their NaN, subnormal
    numbers and saturation.
    """
    narrow = dtype.startswith(("float8_", "float6_", "float4_"))
    if narrow or dtype in ("int2", "uint2", "int4", "uint4"):
        raise UnsupportedOperatorError(f"{what} is of dtype {dtype}, which is not supported")


def tensor_dtype(elem_type: int, what: str) -> str:
    """TVM's name of an ONNX element type; FrontendError, about `what`, for an undefined one."""
    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
    except (KeyError, ValueError) as error:
        raise FrontendError(f"{what} has no valid element type ({elem_type})") from error


def _declared(value: onnx.ValueInfoProto) -> list[int | str] | None:
    """Extents that the model declares, "" for one without number and name; None without a rank."""
    tensor_type = value.type.tensor_type
    if not tensor_type.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param
        for dim in tensor_type.shape.dim
    ]


def _numbers_of_names(
    declared: Mapping[str, list[int | str] | None], shapes: Mapping[str, Sequence[Extent]]
) -> dict[str, int | str]:
    """Extents that the caller's shapes assign to the model's dimension names without conflict."""
    found: dict[str, set[int | str]] = {}
    for name, given in shapes.items():
        for own, extent in zip(declared.get(name) or (), given):
            if isinstance(own, str) and own and isinstance(extent, (int, str)):
                found.setdefault(own, set()).add(extent)
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def _given(
    name: str, declared: list[int | str] | None, given: Sequence[Extent]
) -> tuple[int | str, ...]:
    """The shape a caller gives an input; scalars may get axes: Relay's users gave them (1,)."""
    if declared and len(declared) != len(given):
        raise FrontendError(
            f"shape= gives input {name!r} {len(given)} dimensions {tuple(given)}; "
            f"the model declares {len(declared)}"
        )
    extents: list[int | str] = []
    for axis, extent in enumerate(given):
        if isinstance(extent, str) and extent:
            extents.append(extent)
        elif extent is None or is_any(extent):
            own = declared[axis] if declared else ""
            extents.append(own if isinstance(own, str) and own else f"{name}_{axis}")
        elif isinstance(extent, bool) or not hasattr(extent, "__index__") or int(extent) < 0:
            raise UnknownShapeError(
                f"shape= gives input {name!r} the shape {tuple(given)}; an extent is a number, a "
                "name, or None where only running the model tells it"
            )
        else:
            extents.append(int(extent))
    return tuple(extents)


def _open(
    name: str, declared: list[int | str] | None, named: Mapping[str, int | str]
) -> tuple[int | str, ...]:
    """The shape that the model declares; an extent without number and name gets a name."""
    if declared is None:
        raise UnknownShapeError(
            f"input {name!r} has no shape, not even a rank; pass it: shape={{{name!r}: (...)}}"
        )
    return tuple(
        extent if isinstance(extent, int) else named.get(extent, extent) or f"{name}_{axis}"
        for axis, extent in enumerate(declared)
    )
