"""Split a batch: run large layers image by image, so that their tensors stay in cache.

    before   y = conv2d(x); z = relu(y); w = conv2d(z); ...       each (8, C, H, W)

    after    def images(x): ...                                   each (1, C, H, W)
             w0 = images(strided_slice(x, 0)); ...; w7 = images(strided_slice(x, 7))
             w = concat(w0, ..., w7)

A tensor of eight images that exceeds the caches is written to memory and read back by every layer.
The tensor of one image is still in L2 or L3 when the next layer reads it. The cost is that the
weights are read again for each image, which is little for the first layers, with large images and
small weights. The batch is split after the operator that saves the most bytes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import tvm
from tvm import DataType, relax
from tvm.target import Target

from schedules import strategy
from schedules.x86.machine.cpu import Machine

from ...ir.constants import static_shape
from ...ir.op_facts import BINARY, POOL, REDUCTION, UNARY, facts_of
from ...ir.rewrite import operator_name, variables_of, with_functions
from ...ir.scopes import with_blocks
from ...ir.unique_names import Names
from ...tvm_workarounds.block_builder import BlockBuilder
from ..offloaded_functions import new_global_var
from ..selection.ops.conv2d import describe

NAME = "baton_images"

# With more cores, the layers of one image are too small to use all of them.
MOST_CORES = 4
# Share of L3 that a batch may fill: the rest is for other cores and other tensors.
SHARE_OF_L3 = 0.5


def split_batch(
    mod: tvm.IRModule,
    target: Target,
    query: strategy.Query | None = None,
    recorded: Collection[str] = (),
) -> tuple[tvm.IRModule, str]:
    """Have `main` call a function for each image if its tensors exceed the caches.

    `query` looks up AutoTVM records. A record for a layer of the whole batch is an explicit choice
    of its kernel: the layer, and what depends on it, stays as it is. `recorded`: variables of
    `main` whose operators have such records in another way. Returns the module at operator level,
    and a line for the report; unchanged and empty where nothing is split.
    """
    if target.kind.name != "llvm":
        return mod, ""
    machine = Machine.from_target(target)
    main = mod["main"]
    if machine.num_cores > MOST_CORES or not isinstance(main.body, relax.SeqExpr):
        return mod, ""
    for index, block in enumerate(main.body.blocks):
        if isinstance(block, relax.DataflowBlock):
            region = _find_region(main, block, target, query, recorded)
            if region is None or not _exceeds_caches(region, machine):
                return mod, ""
            note = f"SplitBatch: {len(region.bindings)} operators for one of {region.batch} images"
            return _outlined(mod, index, region), note
    return mod, ""


@dataclass(frozen=True)
class _Region:
    """Operators of a dataflow block that can be applied to one image after the other."""

    batch: int  # number of images
    bindings: list[relax.VarBinding]  # in program order; inputs are bindings, `inputs`, constants
    inputs: list[relax.Var]  # parameters of the function that have a batch axis
    largest: int  # maximum over the operators of the bytes read and written for one image


def _find_region(
    main: relax.Function,
    block: relax.DataflowBlock,
    target: Target,
    query: strategy.Query | None,
    recorded: Collection[str],
) -> _Region | None:
    shapes = (static_shape(var) if _is_tensor(var) else None for var in main.params)
    batch = next((shape[0] for shape in shapes if shape is not None and len(shape) == 4), 1)
    if batch <= 1:
        return None
    of_images = {var for var in main.params if _holds_images(var, batch)}
    bindings: list[relax.VarBinding] = []
    saved, most_saved, cut = 0, 0, 0
    for binding in block.bindings:
        call = binding.value
        if binding.var.name in recorded or not _applies_to_each(call, of_images, batch):
            continue
        if is_recorded(call, target, query):
            continue
        of_images.add(binding.var)
        bindings.append(binding)
        saved += _image_bytes(call, of_images, batch) - _weight_bytes(call, of_images)
        if saved >= max(most_saved, 1):
            most_saved, cut = saved, len(bindings)
    del bindings[cut:]
    if not bindings:
        return None
    read = {var for binding in bindings for var in _operands(binding.value)}
    inputs = [var for var in main.params if var in read]
    largest = max(_image_bytes(binding.value, of_images, batch) for binding in bindings)
    return _Region(batch, bindings, inputs, largest)


def _exceeds_caches(region: _Region, machine: Machine) -> bool:
    return region.batch * region.largest > SHARE_OF_L3 * machine.l3_bytes


def _outlined(mod: tvm.IRModule, index: int, region: _Region) -> tvm.IRModule:
    """The module with the region outlined into a function that is called for each image."""
    main = mod["main"]
    block = main.body.blocks[index]
    inside = {binding.var for binding in region.bindings}
    rest = [binding for binding in block.bindings if binding.var not in inside]
    read = _read_outside(main, index, rest)
    results = [v for v in inside if v in read or not isinstance(v, relax.DataflowVar)]
    results = [binding.var for binding in region.bindings if binding.var in results]

    function = _image_function(region, results)
    names = Names(each.name_hint for each in mod.get_global_vars())
    gvar = new_global_var(names.unique(NAME), function.ty)
    bindings: list[relax.Binding] = []
    parts: list[list[relax.Expr]] = [[] for _ in results]
    for image in range(region.batch):
        arguments = []
        for var in region.inputs:
            one = relax.DataflowVar(f"{var.name}_{image}", _type_of_one(var))
            bindings.append(
                relax.VarBinding(one, relax.op.strided_slice(var, [0], [image], [image + 1]))
            )
            arguments.append(one)
        called = relax.DataflowVar(f"image_{image}", function.ret_ty)
        bindings.append(relax.VarBinding(called, relax.Call(gvar, arguments)))
        for number, (part, result) in enumerate(zip(parts, results)):
            if len(results) == 1:
                part.append(called)
                continue
            field = relax.DataflowVar(f"{result.name}_{image}", _type_of_one(result))
            bindings.append(relax.VarBinding(field, relax.TupleGetItem(called, number)))
            part.append(field)
    for part, result in zip(parts, results):
        bindings.append(relax.VarBinding(result, relax.op.concat(part, axis=0)))

    blocks = list(main.body.blocks)
    blocks[index] = relax.DataflowBlock([*bindings, *rest])
    split = with_functions(
        mod, {gvar: function, mod.get_global_var("main"): with_blocks(main, blocks)}
    )
    return relax.transform.Normalize()(split)


def _image_function(region: _Region, results: list[relax.Var]) -> relax.Function:
    """The operators of the region for a batch of one."""
    builder = BlockBuilder()
    of_one: dict[relax.Var, relax.Expr] = {
        var: relax.Var(var.name, _type_of_one(var)) for var in region.inputs
    }
    params = [of_one[var] for var in region.inputs]

    def operand(arg: relax.Expr) -> relax.Expr:
        if isinstance(arg, relax.Tuple):
            return relax.Tuple([operand(field) for field in arg.fields])
        return of_one.get(arg, arg) if isinstance(arg, relax.Var) else arg

    with builder.function("main", params):
        with builder.dataflow():
            for binding in region.bindings:
                call = binding.value
                args = [operand(arg) for arg in call.args]
                of_one[binding.var] = builder.emit(
                    relax.Call(call.op, args, call.attrs), name_hint=binding.var.name
                )
            outputs = [builder.emit_output(of_one[var]) for var in results]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    return builder.get()["main"].without_attr("global_symbol")


def _applies_to_each(call: relax.Expr, of_images: Collection[relax.Var], batch: int) -> bool:
    """Whether an operator computes each image of its result from the same image of its operands."""
    if not isinstance(call, relax.Call) or not isinstance(call.op, tvm.ir.Op):
        return False
    if not _holds_images(call, batch):
        return False
    name, kind = operator_name(call), facts_of(call).kind
    if name == "nn.conv2d":
        data, weight = call.args
        return data in of_images and _is_constant(weight) and describe(call) is not None
    if kind in (UNARY, POOL):
        layout = getattr(call.attrs, "layout", "NCHW")
        return call.args[0] in of_images and layout == "NCHW"
    if kind == BINARY:
        images = [arg in of_images for arg in call.args]
        return any(images) and all(
            image or _is_same_for_all(arg) for image, arg in zip(images, call.args)
        )
    if kind == REDUCTION:
        axes = call.attrs.axis
        inner = axes is not None and all(int(axis) % 4 > 0 for axis in axes)
        return call.args[0] in of_images and inner and bool(call.attrs.keepdims)
    if name == "concat":
        parts = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
        axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % 4
        return bool(parts) and axis > 0 and all(part in of_images for part in parts)
    return False


def is_recorded(call: relax.Call, target: Target, query: strategy.Query | None) -> bool:
    """Whether a call is a convolution whose kernel an AutoTVM record chooses."""
    if query is None or call.op.name != "relax.nn.conv2d":
        return False
    workload = describe(call)
    chosen = None if workload is None else strategy.select("nn.conv2d", workload, target, query)
    return chosen is not None and not chosen[1].is_fallback


def _is_same_for_all(arg: relax.Expr) -> bool:
    """Whether an operand is a constant without a batch axis."""
    shape = static_shape(arg) if _is_constant(arg) else None
    return shape is not None and (len(shape) < 4 or (len(shape) == 4 and shape[0] == 1))


def _holds_images(expr: relax.Expr, batch: int) -> bool:
    shape = static_shape(expr) if _is_tensor(expr) else None
    return shape is not None and len(shape) == 4 and shape[0] == batch


def _is_tensor(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType)


def _is_constant(arg: relax.Expr) -> bool:
    return isinstance(arg, tvm.ir.GenericConst)


def _operands(call: relax.Call) -> Iterator[relax.Expr]:
    for arg in call.args:
        yield from arg.fields if isinstance(arg, relax.Tuple) else (arg,)


def _image_bytes(call: relax.Call, of_images: Collection[relax.Var], batch: int) -> int:
    """Bytes of one image that an operator reads and writes; 0 if it will be fused."""
    if facts_of(call).is_elementwise:
        return 0
    read = sum(_bytes(arg) for arg in _operands(call) if arg in of_images)
    return (read + _bytes(call)) // batch


def _weight_bytes(call: relax.Call, of_images: Collection[relax.Var]) -> int:
    """Bytes of weights that an operator reads again for every image."""
    if facts_of(call).is_elementwise:
        return 0
    return sum(_bytes(arg) for arg in _operands(call) if arg not in of_images)


def _bytes(expr: relax.Expr) -> int:
    shape = static_shape(expr) if _is_tensor(expr) else None
    return 0 if shape is None else math.prod(shape) * DataType(str(expr.ty.dtype)).itemsize


def _type_of_one(var: relax.Var) -> relax.TensorType:
    shape = static_shape(var)
    assert shape is not None
    return relax.TensorType((1, *shape[1:]), var.ty.dtype)


def _read_outside(main: relax.Function, index: int, rest: list[relax.VarBinding]) -> set[relax.Var]:
    others = [b for i, block in enumerate(main.body.blocks) if i != index for b in block.bindings]
    values = (*(binding.value for binding in (*rest, *others)), main.body.body)
    return {var for value in values for var in variables_of(value)}
