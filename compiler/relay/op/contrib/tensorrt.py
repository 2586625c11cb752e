"""TensorRT backend of Relay's BYOC flow, with one engine per region."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from ....backends import Unsupported
from ....errors import RelayError
from ....ir.rewrite import expressions_in, relax_functions
from ...type_infer import type_of
from .register import register_pattern_table
from .tables import (
    Check,
    Row,
    attribute,
    chain,
    dtype,
    has,
    has_code_generator,
    is_constant_expr,
    name_of,
    needs,
    partition,
    shape,
    tensors,
    without_dropout,
)

_BATCH = "it works along axis 0, which is TensorRT's implicit batch"
_CONVOLUTIONS = (
    "nn.conv1d",
    "nn.conv2d",
    "nn.conv3d",
    "nn.conv2d_transpose",
    "nn.conv3d_transpose",
)
_REDUCTIONS = ("sum", "prod", "max", "min", "mean")
_PRODUCTS = (*_CONVOLUTIONS, "nn.dense", "nn.batch_matmul", *_REDUCTIONS)


@dataclass(frozen=True)
class Options:
    """Options of a TensorRT target."""

    version: tuple[int, ...] = (6, 0, 1)  # TensorRT version; later ones support more operators
    implicit_batch: bool = True  # all first axes are the batch; no operator works along them
    fp16: bool = False  # support float16 tensors
    products_only: bool = False  # reject regions without a matmul, convolution or reduction

    @classmethod
    def of(cls, target: Mapping[str, Any] | None) -> Options:
        given = dict(target or {})
        return cls(
            tuple(given.get("tensorrt_version") or cls.version),
            bool(given.get("use_implicit_batch", True)),
            bool(given.get("use_fp16", False)),
            bool(given.get("remove_no_mac_subgraphs", False)),
        )


def _axis(call: Any, default: int = 0) -> int:
    return int(attribute(call, "axis", default))


def _images(call: Any) -> bool | Unsupported:
    plain = has(call, data_layout="NCHW", kernel_layout="OIHW", layout="NCHW")
    result = attribute(call, "out_layout", "")
    return plain and needs(result in ("", "NCHW"), f"out_layout is {result}; NCHW works")


def _volumes(call: Any) -> bool | Unsupported:
    plain = has(call, data_layout="NCDHW", kernel_layout="OIDHW", layout="NCDHW")
    result = attribute(call, "out_layout", "")
    return plain and needs(result in ("", "NCDHW"), f"out_layout is {result}; NCDHW works")


def _undilated(call: Any) -> bool | Unsupported:
    dilation = attribute(call, "dilation", [])
    return needs(all(each == 1 for each in dilation), f"dilation is {dilation}; 1 works")


def _average(call: Any) -> bool | Unsupported:
    padding = attribute(call, "padding", [])
    skewed = len(padding) == 4 and padding[:2] != padding[2:]
    counted = attribute(call, "count_include_pad") and skewed
    return _images(call) and needs(not counted, "padding is counted and differs by side")


def _padded(call: Any) -> bool | Unsupported:
    widths = attribute(call, "pad_width", [])
    value = call.args[1]
    zeros = is_constant_expr(value) and value.value.numpy().item() <= 0
    spatial = len(widths) in (4, 5) and not any(map(any, widths[: len(widths) - 2]))
    return zeros and has(call, pad_mode="constant") and spatial


def _one_pixel(call: Any) -> bool:
    sizes = attribute(call, "output_size", [])
    return bool(sizes) and all(each == 1 for each in sizes)


def _relaid(call: Any) -> bool:
    layouts = {str(call.attrs.src_layout), str(call.attrs.dst_layout)}
    return layouts in ({"NCHW", "NHWC"}, {"NCDHW", "NDHWC"})


def _joined(call: Any) -> bool:
    parts = call.args[0]
    return isinstance(parts, relax.Tuple) and not any(map(is_constant_expr, parts.fields))


def _rank(*ranks: int) -> Check:
    def check(call: Any) -> bool | Unsupported:
        rank = len(shape(call.args[0]))
        return needs(rank in ranks, f"the rank is {rank}; {', '.join(map(str, ranks))} work")

    return check


class _Table:
    """Collects the table rows for one set of options."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.rows: list[Row] = []

    def add(
        self, names: str, text: str = "", check: Any = None, since: Any = (), **kind: Any
    ) -> None:
        """Add a row for each operator; its check requires a minimum version."""
        for name in names.split():
            pattern = kind.get("pattern") or chain(f"{name}{text}")
            self.rows.append((f"tensorrt.{name}", pattern, self._checked(check, since)))

    def _checked(self, check: Check | None, since: tuple[int, ...]) -> Check:
        def supports(root: Any) -> bool | Unsupported:
            call = root.tuple_value if isinstance(root, relax.TupleGetItem) else root
            if self.options.version < since:
                return Unsupported(f"TensorRT has it since {'.'.join(map(str, since))}")
            wrong = next((each for each in tensors(call) if not self.tensor(each)), None)
            if wrong is not None:
                return Unsupported(f"an operand is {type_of(wrong)}; float32 of known shape works")
            return True if check is None else check(call)

        return supports

    def tensor(self, expr: Any) -> bool:
        kinds = ("float32", "float16") if self.options.fp16 else ("float32",)
        extents = shape(expr)[1:] if self.options.implicit_batch else shape(expr)
        return dtype(expr) in kinds and -1 not in extents

    def off_batch(self, call: Any) -> bool | Unsupported:
        """Whether a call does not work along the implicit batch axis."""
        return needs(not self.options.implicit_batch or _axis(call) != 0, _BATCH)

    def reduced(self, call: Any) -> bool | Unsupported:
        axes = attribute(call, "axis", [])
        axes = [axes] if isinstance(axes, int) else axes
        batch = self.options.implicit_batch and (not axes or 0 in axes)
        return needs(not batch, _BATCH) and not attribute(call, "exclude", False)

    def squeezed(self, call: Any) -> bool | Unsupported:
        axes = attribute(call, "axis", [])
        batch = self.options.implicit_batch and 0 in axes
        return needs(axes, "axis must be given") and needs(not batch, _BATCH)

    def summed(self, call: Any) -> bool:
        left, right = map(shape, call.args)
        if self.options.implicit_batch:
            return bool(left and right)
        constant = any(map(is_constant_expr, call.args))
        same_batch = bool(left and right) and left[0] == right[0] != 1
        return not (constant and same_batch and max(len(left), len(right)) > 3)

    def matched(self, call: Any) -> bool | Unsupported:
        ranks = {len(shape(each)) for each in call.args}
        fits = not self.options.implicit_batch or len(ranks) == 1
        return needs(fits, "the operands have different ranks")

    def transposed(self, call: Any) -> bool | Unsupported:
        axes = attribute(call, "axes") or [-1]
        return needs(not self.options.implicit_batch or axes[0] == 0, _BATCH)

    def reshaped(self, call: Any) -> bool | Unsupported:
        if any(each < -1 for each in attribute(call, "newshape", [])):
            return False
        old, new = shape(call.args[0]), shape(call)
        kept = not self.options.implicit_batch or (bool(old and new) and old[0] == new[0])
        return needs(kept, _BATCH)

    def sliced(self, call: Any) -> bool | Unsupported:
        if any(each <= 0 for each in attribute(call, "strides", [])):
            return Unsupported("a stride is not above 0")
        batch = self.options.implicit_batch and shape(call)[0] != shape(call.args[0])[0]
        return needs(not batch, _BATCH) and needs(0 not in shape(call), "the result is empty")


def _table(options: Options) -> list[Row]:
    from ...dataflow_pattern import is_constant, is_op, is_tuple, is_tuple_get_item, wildcard

    table = _Table(options)
    add = table.add
    add("nn.conv3d", "(c)", _volumes, (6, 0, 1))
    add("nn.conv2d", "(c)", _images)
    add("nn.conv1d", "(c)", lambda call: has(call, data_layout="NCW", kernel_layout="OIW"))
    add("nn.conv2d_transpose", "(_)", lambda call: _images(call) and _undilated(call))
    add("squeeze", "", table.squeezed)
    add("add", "(_)", table.summed)
    add("nn.dense", "(c)", _rank(2, 3, 4))
    add("nn.bias_add", "(_)", _rank(2, 3, 4))
    add("nn.batch_matmul", "(_)", table.matched)
    add("divide multiply subtract power maximum minimum", "(_)")
    add("nn.relu sigmoid tanh exp log sqrt abs negative nn.batch_flatten clip floor")
    add("nn.leaky_relu sin cos atan ceil", since=(5, 1, 5))
    add("erf", since=(7, 0, 0))
    add(" ".join(_REDUCTIONS), "", table.reduced)
    add(
        "concatenate",
        check=lambda call: _joined(call) and table.off_batch(call),
        pattern=chain("concatenate", is_tuple(None)),
    )
    add("expand_dims split nn.softmax nn.layer_norm", check=table.off_batch)
    add("layout_transform", "", _relaid)
    add("transpose", "", table.transposed)
    add("reshape", "", table.reshaped)
    add("nn.pad", "(_)", _padded)
    add("strided_slice", "", table.sliced, (5, 1, 5))
    add("nn.adaptive_avg_pool2d nn.adaptive_max_pool2d", "", _one_pixel)
    add("nn.max_pool3d nn.avg_pool3d", "", _volumes, (6, 0, 1))
    add(
        "nn.conv3d_transpose",
        "(c)",
        lambda call: (
            _volumes(call)
            and _undilated(call)
            and all(each == 0 for each in attribute(call, "output_padding", []))
        ),
        (6, 0, 1),
    )
    add("nn.max_pool2d nn.global_max_pool2d nn.global_avg_pool2d", "", _images)
    add("nn.avg_pool2d", "", _average)
    norm = is_op("nn.batch_norm")(wildcard(), *(is_constant() for _ in range(4)))
    add(
        "nn.batch_norm",
        check=lambda call: len(shape(call.args[0])) <= 5 and _axis(call, 1) in (1, 3),
        pattern=is_tuple_get_item(norm, 0),
    )
    return table.rows


@register_pattern_table("tensorrt")
def pattern_table() -> list[Row]:
    """Pattern table: single operators, to be merged into regions."""
    return _table(Options())


def is_tensorrt_compiler_enabled() -> bool:
    """Whether functions for TensorRT can be built and run."""
    return has_code_generator("tensorrt")


is_tensorrt_runtime_enabled = is_tensorrt_compiler_enabled


def partition_for_tensorrt(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    target: Mapping[str, Any] | None = None,
    **pair: Any,
) -> Any:
    """Partition a module for TensorRT.

    `params`: weights to bind. `target`: "tensorrt_version", "use_implicit_batch", "use_fp16",
    "remove_no_mac_subgraphs" of TVM's former target `tensorrt`, with its defaults.

    `pair`: these options as keyword arguments ("version" for the first), as until TVM 0.9. The
    result then is a pair of the module and a dict of the options. The engine's own
    "max_workspace_size" and "use_uint8" change nothing. RelayError for other keywords.
    """
    if pair:
        unknown = sorted(pair.keys() - {*_KEYWORDS, "max_workspace_size", "use_uint8"})
        if unknown or target is not None:
            raise RelayError(
                f"partition_for_tensorrt: unexpected {', '.join(unknown) or 'target='}; pass "
                f"either target= or options among {', '.join(_KEYWORDS)}"
            )
        options = {_KEYWORDS[key]: value for key, value in pair.items() if key in _KEYWORDS}
        return partition_for_tensorrt(mod, params, options), options
    return _partitioned(mod, params, Options.of(target))


_KEYWORDS = {
    "version": "tensorrt_version",
    "use_implicit_batch": "use_implicit_batch",
    "remove_no_mac_subgraphs": "remove_no_mac_subgraphs",
    "use_fp16": "use_fp16",
}


def _partitioned(mod: Any, params: Mapping[str, Any] | None, options: Options) -> Any:
    from ... import transform

    layouts = {"nn.conv1d": "NCW", "nn.conv2d": "NCHW", "nn.conv3d": "NCDHW"}
    layouts["nn.conv2d_transpose"] = "NCHW"
    convert = transform.ConvertLayout({name: [each, "default"] for name, each in layouts.items()})
    first = (without_dropout(), "RemoveUnusedFunctions", convert, "FoldConstant")
    made = partition(mod, params, "tensorrt", _table(options), first)
    return _without_refused(made, options)


def _without_refused(mod: tvm.IRModule, options: Options) -> tvm.IRModule:
    """Inline functions that TensorRT rejects as a whole back into their callers."""
    from ... import transform

    functions = dict(mod.functions_items())
    kept = {}
    for gvar, function in relax_functions(mod):
        compiler = (function.attrs or {}).get("Compiler")
        if compiler is None:
            continue
        if compiler != "tensorrt" or _accepts(function, options):
            kept[gvar.name_hint] = function.attrs["Inline"]
            functions[gvar] = function.without_attr("Inline")
        else:
            for key in ("Compiler", "Primitive", "global_symbol"):
                functions[gvar] = functions[gvar].without_attr(key)
    made = transform.Inline()(tvm.IRModule(functions, attrs=mod.attrs))
    functions = dict(made.functions_items())
    for gvar, function in made.functions_items():
        if gvar.name_hint in kept:
            functions[gvar] = function.with_attr("Inline", kept[gvar.name_hint])
    return tvm.IRModule(functions, attrs=mod.attrs)


def _accepts(function: relax.Function, options: Options) -> bool:
    if options.implicit_batch:
        shapes = [shape(parameter) for parameter in function.params]
        if not all(shapes) or len({each[0] for each in shapes if each[0] >= 0}) > 1:
            return False
    multiplies = any(name_of(node) in _PRODUCTS for node in expressions_in(function))
    return multiplies or not options.products_only
