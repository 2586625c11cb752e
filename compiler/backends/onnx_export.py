"""A Relax module of common operators as an ONNX model; see `why_inexpressible` for operators."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax

from compiler.errors import UnsupportedOperatorError
from compiler.ir import dynamic_shape
from compiler.ir.constants import integers
from compiler.ir.op_facts import facts_named
from compiler.ir.unique_names import Names

from ..ir.rewrite import relax_functions

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 17
IR_VERSION = 8
"""What onnxruntime reads since 1.15."""
_DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool")

_DATA_LAYOUTS = ("NCW", "NCHW", "NCDHW")

_PAD_MODES = ("constant", "edge", "reflect")

_MXNET = frozenset(
    [
        *("Activation", "Concat", "Convolution", "Dropout", "Flatten", "FullyConnected", "Pooling"),
        *("_add", "_div", "_mul", "_sub", "abs", "broadcast_add", "broadcast_div"),
        *("broadcast_mul", "broadcast_sub", "clip", "cos", "elemwise_add", "elemwise_div"),
        *("elemwise_mul", "elemwise_sub", "erf", "exp", "expand_dims", "log", "relu", "sigmoid"),
        *("sin", "softmax", "sqrt", "tanh", "transpose"),
    ]
)

_RELAY = frozenset(
    [
        *("cast", "concatenate", "nn.batch_flatten", "nn.batch_matmul", "nn.bias_add", "nn.dense"),
        *("nn.global_avg_pool1d", "nn.global_avg_pool2d", "nn.global_avg_pool3d", "nn.leaky_relu"),
        *("nn.lrn", "nn.matmul", "round"),
    ]
)
"""Relay's operators that lower to operators of other names, all with converters."""

_MOST_UNKNOWN = {"broadcast_to": 0, "split": 0, "strided_slice": 0} | dict.fromkeys(
    ("expand_dims", "flatten", "nn.batch_flatten", "reshape", "squeeze"), 1
)
"""How many extents of a result only running may tell, where that matters."""


def why_inexpressible(op: str, attrs: Mapping[str, Any]) -> str:
    """Why an operator can't be exported, as far as its name and its attributes say; "" if it can.

    `attrs`: Relay's or Relax's, as text, with "shape" and "dtype" of the result.
    """
    if op in _MXNET:
        return ""
    if not facts_named(op).onnx and op not in _CONVERTERS and op not in _RELAY:
        return f"{op} is not exported to ONNX"
    if op.startswith(("nn.conv", "nn.max_pool", "nn.avg_pool", "nn.adaptive_avg_pool")):
        return _objection_to_window(op, attrs)
    if op == "take" and attrs.get("batch_dims", "0") != "0":
        return f"batch_dims is {attrs['batch_dims']}; only 0 is exported"
    mode = attrs.get("pad_mode", "constant")
    if op == "nn.pad" and mode not in _PAD_MODES:
        return f"pad_mode is {mode}; ONNX has {', '.join(_PAD_MODES)}"
    unknown = re.findall(r"[^\[\],]*[A-Za-z_][^\[\],]*", str(attrs.get("shape", "")))
    most = _MOST_UNKNOWN.get(op, len(unknown))
    if len(unknown) > most:
        found = ", ".join(each.strip() for each in unknown)
        return f"the result has dynamic extents ({found}); at most {most} can be exported"
    dtypes = [each.strip("[] ") for each in str(attrs.get("dtype", "float32")).split(",")]
    wrong = [dtype for dtype in dtypes if dtype not in _DTYPES]
    return f"dtype {wrong[0]} is not exported to ONNX" if wrong else ""


def _objection_to_window(op: str, attrs: Mapping[str, Any]) -> str:
    """Why a window is not over channels-first data, or of a form that ONNX's operator lacks."""
    weight = "IO" if op.endswith("_transpose") else "OI"
    weights = ("", *(weight + layout[2:] for layout in _DATA_LAYOUTS))
    for key in ("data_layout", "layout", "out_layout"):
        if attrs.get(key, "") not in ("", *_DATA_LAYOUTS):
            return f"{key} is {attrs[key]}; ONNX has channels first"
    if attrs.get("kernel_layout", "") not in weights:
        return f"kernel_layout is {attrs['kernel_layout']}; ONNX has {weight} first"
    dilated = not op.startswith("nn.avg_pool") and weight == "OI"
    for key in ("output_size", *(() if dilated else ("dilation",))):
        if set(re.findall(r"\d+", str(attrs.get(key, "1")))) != {"1"}:
            return f"{key} is {attrs[key]}; only 1 is exported"
    return ""


def to_onnx(
    mod: tvm.IRModule, params: Mapping[str, np.ndarray], outputs: Sequence[str] = ()
) -> ModelProto:
    """Export the one Relax function of a module, or its `main`; calls are replaced by bodies.

    Parameters in `params` become initializers; the others become inputs, in order. In `outputs`, a
    number is appended to a name that is taken. Raises UnsupportedOperatorError: an operator, or its
    form, can't be expressed.
    """
    functions = [f for _, f in relax_functions(mod)]
    function = functions[0] if len(functions) == 1 else mod["main"]
    return _Exporter(mod, params).model(function, outputs)


class _Exporter:
    def __init__(self, mod: tvm.IRModule, params: Mapping[str, np.ndarray]) -> None:
        self._mod = mod
        self._params = params
        self._names: dict[Any, str | list[str]] = {}  # variable -> value, or a tuple's values
        self._symbols: dict[Any, str] = {}  # of the inputs' extents
        self._shapes: dict[str, Any] = {}  # of the results of nodes, as far as they are static
        self._fresh = Names().unique
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def model(self, function: relax.Function, output_names: Sequence[str]) -> ModelProto:
        import onnx

        self._symbols = dynamic_shape.names(function)
        inputs = []
        for var in function.params:
            name = self._names[var] = self._fresh(var.name)
            if var.name in self._params:
                self._initialize(name, self._params[var.name])
            else:
                inputs.append(self._value_info(name, var.ty))
        found = self._body(function)
        result = function.body.body
        types = result.ty.fields if isinstance(result.ty, relax.TupleType) else [result.ty]
        outputs = []
        for name, ty, title in zip(found, types, output_names or ["output"] * len(types)):
            # An input may be an output, and one output two.
            out = self.emit("Identity", [name], stem=title)
            outputs.append(self._value_info(out, ty))
        shapes = list(self._shapes.values())
        graph = onnx.helper.make_graph(
            self.nodes, "subgraph", inputs, outputs, self.initializers, value_info=shapes
        )
        opset = [onnx.helper.make_opsetid("", OPSET)]
        return onnx.helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)

    def _body(self, function: relax.Function) -> list[str]:
        """Add the nodes of a function; names of its results."""
        for block in function.body.blocks:
            for binding in block.bindings:
                found = self._names[binding.var] = self._convert(binding.value)
                computed = self.nodes[-1].output if self.nodes else ()
                if found in computed and integers(extents_of(binding.var.ty)) is not None:
                    # ONNX's own inference differs from engines where a pool rounds sizes up.
                    self._shapes[str(found)] = self._value_info(str(found), binding.var.ty)
        return self.values(function.body.body)

    def _value_info(self, name: str, ty: Any) -> Any:
        import onnx

        dtype = _dtype_of(ty)
        extents = [dynamic_shape.number_or_text(extent, self._symbols) for extent in extents_of(ty)]
        return onnx.helper.make_tensor_value_info(name, dtype, extents)

    def _initialize(self, name: str, value: np.ndarray) -> None:
        import onnx

        self.initializers.append(onnx.numpy_helper.from_array(np.asarray(value, order="C"), name))

    def constant(self, value: Any, dtype: str = "int64") -> str:
        """A value that the model holds."""
        name = self._fresh("constant")
        self._initialize(name, np.asarray(value, dtype))
        return name

    def emit(self, op: str, inputs: Sequence[str], stem: str = "", **attrs: Any) -> str:
        """Add a node of one output; its name."""
        return self.emit_several(op, inputs, 1, stem, **attrs)[0]

    def emit_several(
        self, op: str, inputs: Sequence[str], outputs: int, stem: str = "", **attrs: Any
    ) -> list[str]:
        """Add a node; the names of its outputs. Attributes that are None are left out."""
        import onnx

        names = [self._fresh(stem or op.lower()) for _ in range(outputs)]
        given = {key: value for key, value in attrs.items() if value is not None}
        self.nodes.append(onnx.helper.make_node(op, list(inputs), names, **given))
        return names

    def emit_first(self, op: str, call: Any, *more: str, **attrs: Any) -> str:
        """Add a node whose inputs are the first argument of a call, and more."""
        return self.emit(op, [self.value(call.args[0]), *more], **attrs)

    def _convert(self, value: Any) -> str | list[str]:
        if isinstance(value, (tvm.ir.Var, tvm.ir.Tuple, tvm.ir.GenericConst)):
            found = self.values(value)
            return found if isinstance(value.ty, relax.TupleType) else found[0]
        if isinstance(value, tvm.ir.TupleGetItem):
            return self.values(value.tuple_value)[value.index]
        if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            callee = self._mod[value.op]
            self._names.update(zip(callee.params, map(self.value, value.args)))
            results = self._body(callee)
            return results if isinstance(value.ty, relax.TupleType) else results[0]
        if not isinstance(value, tvm.ir.Call) or not isinstance(value.op, tvm.ir.Op):
            raise UnsupportedOperatorError(f"{type(value).__name__} can't be expressed in ONNX")
        name = value.op.name.removeprefix("relax.")
        if facts_named(name).onnx:
            return self.emit(facts_named(name).onnx, [self.value(arg) for arg in value.args])
        if name not in _CONVERTERS:
            raise UnsupportedOperatorError(f"operator {name} can't be expressed in ONNX")
        return _CONVERTERS[name](self, value)

    def values(self, expr: Any) -> list[str]:
        """Names of the tensors behind an expression."""
        if isinstance(expr, tvm.ir.Tuple):
            return [name for field in expr.fields for name in self.values(field)]
        if isinstance(expr, tvm.ir.GenericConst):
            return [self.constant(expr.value.numpy(), str(expr.value.dtype))]
        found = self._names[expr]
        return found if isinstance(found, list) else [found]

    def value(self, expr: Any) -> str:
        """Name of the one tensor behind an expression."""
        (name,) = self.values(expr)
        return name


def extents_of(ty: Any) -> list[Any]:
    """The extents of a tensor type, numbers and expressions over symbols."""
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        raise UnsupportedOperatorError(f"a value of type {ty} has no shape")
    return list(ty.shape.values)


def shape_of(ty: Any) -> list[int]:
    """Static shape of a tensor type."""
    extents = integers(extents_of(ty))
    if extents is None:
        raise UnsupportedOperatorError(f"the shape {ty.shape} is known only at run time")
    return list(extents)


def _dtype_of(ty: Any) -> int:
    """ONNX's number of a tensor type's dtype."""
    import onnx

    return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(str(ty.dtype)))


def _ints(values: Any) -> list[int]:
    return [int(value) for value in values]


def _number(expr: Any) -> float:
    found = getattr(expr, "value", expr)
    return float(getattr(found, "value", found))


def _require(condition: bool, call: Any, why: str) -> None:
    if not condition:
        raise UnsupportedOperatorError(f"operator {call.op.name}: {why} can't be expressed in ONNX")


def _convolution(kind: str, weight: str) -> Callable[[_Exporter, Any], str]:
    """Convolutions of channels-first data; `weight` begins the layout of the weight."""

    def convert(exporter: _Exporter, call: Any) -> str:
        attrs = call.attrs
        layout = str(attrs.data_layout)
        plain = layout in _DATA_LAYOUTS and attrs.kernel_layout == weight + layout[2:]
        _require(plain, call, f"layout {layout} with weights {attrs.kernel_layout}")
        return exporter.emit(
            kind,
            [exporter.value(arg) for arg in call.args],
            strides=_ints(attrs.strides),
            dilations=_ints(attrs.dilation),
            pads=_ints(attrs.padding),
            group=int(attrs.groups),
            output_padding=_ints(attrs.output_padding) if kind == "ConvTranspose" else None,
        )

    return convert


def _pool(kind: str) -> Callable[[_Exporter, Any], str]:
    def convert(exporter: _Exporter, call: Any) -> str:
        attrs = call.attrs
        _require(attrs.layout in _DATA_LAYOUTS, call, f"layout {attrs.layout}")
        average = kind == "AveragePool"
        if average:
            _require(set(_ints(attrs.dilation)) == {1}, call, "a dilation")
        return exporter.emit_first(
            kind,
            call,
            kernel_shape=_ints(attrs.pool_size),
            strides=_ints(attrs.strides),
            pads=_ints(attrs.padding),
            ceil_mode=int(attrs.ceil_mode),
            dilations=None if average else _ints(attrs.dilation),
            count_include_pad=int(attrs.count_include_pad) if average else None,
        )

    return convert


def _global_average(exporter: _Exporter, call: Any) -> str:
    attrs = call.attrs
    plain = attrs.layout in _DATA_LAYOUTS and set(_ints(attrs.output_size)) == {1}
    _require(plain, call, f"layout {attrs.layout} with the size {attrs.output_size}")
    return exporter.emit_first("GlobalAveragePool", call)


def _batch_norm(exporter: _Exporter, call: Any) -> list[str]:
    attrs = call.attrs
    _require(not attrs.training, call, "training")
    data, axis = exporter.value(call.args[0]), int(attrs.axis)
    order = list(range(call.args[0].ty.ndim))
    order[1], order[axis] = order[axis], order[1]
    if axis != 1:
        data = exporter.emit("Transpose", [data], perm=order)
    ones = np.ones(shape_of(call.args[1].ty), str(call.args[1].ty.dtype))
    scale = exporter.value(call.args[1])
    if not attrs.scale:
        scale = exporter.constant(ones, str(ones.dtype))
    offset = exporter.value(call.args[2])
    if not attrs.center:
        offset = exporter.constant(0 * ones, str(ones.dtype))
    mean, variance = exporter.value(call.args[3]), exporter.value(call.args[4])
    result = exporter.emit(
        "BatchNormalization", [data, scale, offset, mean, variance], epsilon=float(attrs.epsilon)
    )
    if axis != 1:
        result = exporter.emit("Transpose", [result], perm=order)
    return [result, mean, variance]


def _layer_norm(exporter: _Exporter, call: Any) -> str:
    axes, rank = _ints(call.attrs.axes), call.args[0].ty.ndim
    last = sorted(axis % rank for axis in axes) == list(range(rank - len(axes), rank))
    _require(last and call.attrs.center and call.attrs.scale, call, "this form")
    return exporter.emit(
        "LayerNormalization",
        [exporter.value(arg) for arg in call.args],
        axis=-len(axes),
        epsilon=float(call.attrs.epsilon),
    )


def _with_attribute(
    kind: str, name: str, read: Callable[[Any], Any]
) -> Callable[[_Exporter, Any], str]:
    """Operators of one input with an attribute that both have by one name."""
    return lambda exporter, call: exporter.emit_first(
        kind, call, **{name: read(getattr(call.attrs, name))}
    )


def _reduce(kind: str, axes_are_input: bool = False) -> Callable[[_Exporter, Any], str]:
    def convert(exporter: _Exporter, call: Any) -> str:
        attrs = call.attrs
        axes = None if attrs.axis is None else _ints(attrs.axis)
        inputs = [exporter.value(call.args[0])]
        if axes_are_input and axes is not None:
            inputs.append(exporter.constant(axes))
        own = None if axes_are_input else axes
        return exporter.emit(kind, inputs, axes=own, keepdims=int(attrs.keepdims))

    return convert


def _reshaped(exporter: _Exporter, call: Any) -> str:
    """Whatever only gives the data another shape takes that of the result; one may be unknown."""
    extents = [integers([extent]) or (-1,) for extent in extents_of(call.ty)]
    shape = [extent for (extent,) in extents]
    if shape.count(-1) > 1 or {-1, 0} <= set(shape):
        raise UnsupportedOperatorError(f"the shape {call.ty.shape} is known only at run time")
    allowzero = None if -1 in shape else 1
    return exporter.emit_first("Reshape", call, exporter.constant(shape), allowzero=allowzero)


def _transpose(exporter: _Exporter, call: Any) -> str:
    axes = None if call.attrs.axes is None else _ints(call.attrs.axes)
    return exporter.emit_first("Transpose", call, perm=axes)


def _concat(exporter: _Exporter, call: Any) -> str:
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    return exporter.emit("Concat", exporter.values(call.args[0]), axis=axis)


def _split(exporter: _Exporter, call: Any) -> list[str]:
    axis = int(call.attrs.axis)
    sizes = [shape_of(field)[axis] for field in call.ty.fields]
    inputs = [exporter.value(call.args[0]), exporter.constant(sizes)]
    return exporter.emit_several("Split", inputs, len(sizes), axis=axis)


def _clip(exporter: _Exporter, call: Any) -> str:
    dtype = str(call.ty.dtype)
    bounds = [exporter.constant(_number(bound), dtype) for bound in call.args[1:]]
    return exporter.emit_first("Clip", call, *bounds)


def _cast(exporter: _Exporter, call: Any) -> str:
    return exporter.emit_first("Cast", call, to=_dtype_of(call.ty))


def _broadcast(exporter: _Exporter, call: Any) -> str:
    return exporter.emit_first("Expand", call, exporter.constant(shape_of(call.ty)))


def _gelu(exporter: _Exporter, call: Any) -> str:
    x, dtype = exporter.value(call.args[0]), str(call.ty.dtype)
    scaled = exporter.emit("Mul", [x, exporter.constant(0.5**0.5, dtype)])
    erf = exporter.emit("Add", [exporter.emit("Erf", [scaled]), exporter.constant(1, dtype)])
    half = exporter.emit("Mul", [x, exporter.constant(0.5, dtype)])
    return exporter.emit("Mul", [half, erf])


def _silu(exporter: _Exporter, call: Any) -> str:
    x = exporter.value(call.args[0])
    return exporter.emit("Mul", [x, exporter.emit("Sigmoid", [x])])


def _lrn(exporter: _Exporter, call: Any) -> str:
    _require(int(call.attrs["axis"]) == 1, call, "an axis other than 1")
    attrs: dict[str, Any] = {name: float(call.attrs[name]) for name in ("alpha", "beta", "bias")}
    attrs["size"] = int(call.attrs["size"])
    return exporter.emit_first("LRN", call, **attrs)


def _pad(exporter: _Exporter, call: Any) -> str:
    mode = str(call.attrs.pad_mode)
    _require(mode in _PAD_MODES, call, f"the mode {mode}")
    width = _ints(call.attrs.pad_width)  # before and behind the first axis, then the second's
    pads = exporter.constant([*width[::2], *width[1::2]])
    value = exporter.constant(_number(call.attrs.pad_value), str(call.ty.dtype))
    return exporter.emit_first("Pad", call, pads, value, mode=mode)


def _strided_slice(exporter: _Exporter, call: Any) -> str:
    axes, begin, end, strides = (
        exporter.constant([int(_number(each)) for each in part.fields]) for part in call.args[1:5]
    )
    return exporter.emit_first("Slice", call, begin, end, axes, strides)


def _quantization(kind: str) -> Callable[[_Exporter, Any], str]:
    def convert(exporter: _Exporter, call: Any) -> str:
        quantized, real = (call, call.args[0]) if kind == "QuantizeLinear" else (call.args[0], call)
        floats = {str(each.ty.dtype) for each in (real, call.args[1])}
        _require(floats == {"float32"}, call, "another type than float32")
        data, scale, zero_point = (exporter.value(arg) for arg in call.args)
        if call.args[2].ty.dtype != quantized.ty.dtype:
            zero_point = exporter.emit("Cast", [zero_point], to=_dtype_of(quantized.ty))
        return exporter.emit(kind, [data, scale, zero_point], axis=int(call.attrs.axis))

    return convert


def _take(exporter: _Exporter, call: Any) -> str:
    """Gather; indices out of bounds are errors in ONNX, where Relay clips or wraps them."""
    axis, mode = int(call.attrs.axis), str(call.attrs.mode)
    data, indices = (exporter.value(arg) for arg in call.args)
    if mode != "fast":
        import onnx

        indices = exporter.emit("Cast", [indices], to=onnx.TensorProto.INT64)
        shape = exporter.emit("Shape", [data])
        size = exporter.emit("Gather", [shape, exporter.constant(axis)], axis=0)
        if mode == "wrap":
            indices = exporter.emit("Mod", [indices, size])
        else:
            last = exporter.emit("Sub", [size, exporter.constant(1)])
            least = exporter.emit("Max", [indices, exporter.constant(0)])
            indices = exporter.emit("Min", [least, last])
    return exporter.emit("Gather", [data, indices], axis=axis)


def _round(exporter: _Exporter, call: Any) -> str:
    """The nearest integer, halves away from zero, where ONNX's rounds them to even."""
    x, dtype = exporter.value(call.args[0]), str(call.ty.dtype)
    size = exporter.emit("Abs", [x])
    below = exporter.emit("Floor", [size])
    rest = exporter.emit("Sub", [size, below])
    up = exporter.emit("GreaterOrEqual", [rest, exporter.constant(0.5, dtype)])
    step = exporter.emit("Where", [up, exporter.constant(1, dtype), exporter.constant(0, dtype)])
    return exporter.emit("Mul", [exporter.emit("Sign", [x]), exporter.emit("Add", [below, step])])


_CONVERTERS: dict[str, Callable[[_Exporter, Any], Any]] = {
    "astype": _cast,
    "broadcast_to": _broadcast,
    "clip": _clip,
    "concat": _concat,
    "dequantize": _quantization("DequantizeLinear"),
    "expand_dims": _reshaped,
    "flatten": _reshaped,
    "max": _reduce("ReduceMax"),
    "mean": _reduce("ReduceMean"),
    "min": _reduce("ReduceMin"),
    "nn.batch_norm": _batch_norm,
    "nn.gelu": _gelu,
    "nn.layer_norm": _layer_norm,
    "nn.leakyrelu": _with_attribute("LeakyRelu", "alpha", float),
    "nn.log_softmax": _with_attribute("LogSoftmax", "axis", int),
    "nn.pad": _pad,
    "relay.nn.lrn": _lrn,
    "relay.round": _round,
    "strided_slice": _strided_slice,
    "take": _take,
    "nn.silu": _silu,
    "nn.softmax": _with_attribute("Softmax", "axis", int),
    "permute_dims": _transpose,
    "quantize": _quantization("QuantizeLinear"),
    "reshape": _reshaped,
    "split": _split,
    "squeeze": _reshaped,
    "sum": _reduce("ReduceSum", axes_are_input=True),
} | {
    name.format(count): converter
    for count in (1, 2, 3)
    for name, converter in {
        "nn.adaptive_avg_pool{}d": _global_average,
        "nn.avg_pool{}d": _pool("AveragePool"),
        "nn.conv{}d": _convolution("Conv", "OI"),
        "nn.conv{}d_transpose": _convolution("ConvTranspose", "IO"),
        "nn.max_pool{}d": _pool("MaxPool"),
    }.items()
}
