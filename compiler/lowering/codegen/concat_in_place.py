"""`ConcatInPlace`: kernels write the parts of a concatenation directly into the result.

After kernels' results became separate tensors, before memory is planned:

    a = alloc_tensor((1, 8, 55, 55, 8));  conv2d(x, w0, a)
    b = alloc_tensor((1, 8, 55, 55, 8));  conv2d(x, w1, b)
    c = alloc_tensor((1, 16, 55, 55, 8)); concatenate(a, b, c)

after:

    c = alloc_tensor((1, 16, 55, 55, 8))
    a = view(c, (1, 8, 55, 55, 8), 0);       conv2d(x, w0, a)
    b = view(c, (1, 8, 55, 55, 8), 774400);  conv2d(x, w1, b)

This requires parts that are contiguous in the result: along the channels of one image, or along
the batch. The result of a concatenation may itself be a part of the next, as in a dense block.

Kernels reject TVM's views, which have the data pointer of their tensor and a byte offset.
So a separate kernel moves the pointer of each new view, and sets the offset to zero.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import DataType, relax, tirx
from tvm.target import Target

from schedules.x86.machine.cpu import Machine

from ...ir.rewrite import relax_functions, variables_of
from ...ir.scopes import set_type, with_blocks
from ...runtime.debugger.trace import MOVE_POINTER
from ..kernel_passes.custom_lower_passes import INTERNAL
from ..offloaded_functions import call_counts, new_global_var

NAME = "ConcatInPlace"
CONCATENATES = "baton.concatenates"
"""Attribute of kernels that do nothing but concatenate their operands along one axis."""

# Kernels are compiled for operands aligned to this number of bytes.
ALIGNMENT = 64
# Share of L3 that a result may fill: the rest is for other cores and other tensors.
SHARE_OF_L3 = 0.25

# Fields of a DLTensor as TVM's intrinsic functions count them (TVMStructFieldKind in builtin.h).
_DATA, _BYTE_OFFSET = 1, 8


@tvm.transform.module_pass(opt_level=3, name=NAME)
class ConcatInPlace:
    """Make parts of concatenations views of the results, and drop the kernels that copied them.

    `dropped`: saved calls per inference, by kernel, once the pass has run.
    """

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        offsets = {
            gvar: found
            for gvar, kernel in mod.functions_items()
            if isinstance(kernel, tvm.tirx.PrimFunc) and (found := part_offsets(kernel)) is not None
        }
        if not offsets:
            return mod
        times = call_counts(mod)
        functions = dict(mod.functions_items())
        mover = move_pointer()
        move = new_global_var(MOVE_POINTER, mover.ty)
        for gvar, function in relax_functions(mod):
            blocks = []
            for block in function.body.blocks:
                places = _Places(block, offsets, set(variables_of(function.body.body)))
                blocks.append(places.rewritten(move))
                for kernel in places.dropped.values():
                    self.dropped[str(kernel.name_hint)] += times[gvar.name_hint]
            functions[gvar] = with_blocks(function, blocks)
        if not self.dropped:
            return mod
        functions[move] = mover
        called = _called_kernels(functions.values())
        for gvar in offsets:
            if gvar.name_hint in self.dropped and gvar not in called:
                del functions[gvar]
        return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def part_offsets(kernel: tvm.tirx.PrimFunc) -> list[int] | None:
    """Byte offsets of a concatenation's operands; None if not contiguous, aligned, or a concat."""
    if not kernel.attrs or CONCATENATES not in kernel.attrs:
        return None
    return aligned_offsets(kernel)


def is_profitable(kernel: tvm.tirx.PrimFunc, target: Target) -> bool:
    """Whether the result of a concatenation kernel is small enough for the caches.

    A part may have left the caches when the whole is read, for example after a skip connection.
    The copy then reads it from memory faster than a convolution would.
    """
    shapes = _shapes(kernel)
    if shapes is None:
        return False
    size = math.prod(shapes[-1]) * DataType(str(kernel.params[-1].dtype)).itemsize
    return size < SHARE_OF_L3 * Machine.from_target(target).l3_bytes


def aligned_offsets(kernel: tvm.tirx.PrimFunc) -> list[int] | None:
    """`part_offsets` of a kernel that is known to be a concatenation."""
    shapes = _shapes(kernel)
    starts = None if shapes is None else _starts(shapes[:-1], shapes[-1])
    if starts is None:
        return None
    itemsize = DataType(str(kernel.params[-1].dtype)).itemsize
    offsets = [start * itemsize for start in starts]
    return None if any(offset % ALIGNMENT for offset in offsets) else offsets


def _shapes(kernel: tvm.tirx.PrimFunc) -> list[tuple[int, ...]] | None:
    """Shapes of the operands and the result; None if one is dynamic."""
    shapes: list[tuple[int, ...]] = []
    for param in kernel.params:
        shape = getattr(param, "shape", None)
        if shape is None or not all(isinstance(extent, tirx.IntImm) for extent in shape):
            return None
        shapes.append(tuple(map(int, shape)))
    return shapes


def move_pointer() -> tirx.PrimFunc:
    """A kernel that adds a tensor's byte offset to its data pointer and clears the offset."""
    view = tirx.Var("view", "handle")
    data = tirx.tvm_struct_get(view, 0, _DATA, "handle")
    offset = tirx.tvm_struct_get(view, 0, _BYTE_OFFSET, "uint64")
    moved = tirx.handle_add_byte_offset(data, offset)
    body = tirx.SeqStmt([
        tirx.Evaluate(tirx.tvm_struct_set(view, 0, _DATA, moved)),
        tirx.Evaluate(tirx.tvm_struct_set(view, 0, _BYTE_OFFSET, tirx.const(0, "uint64"))),
    ])  # fmt: skip
    return tirx.PrimFunc([view], body).with_attrs({"tirx.is_scheduled": True, INTERNAL: True})


def _starts(parts: Sequence[tuple[int, ...]], whole: tuple[int, ...]) -> list[int] | None:
    """Offset of each part in elements; None unless the parts are consecutive in memory."""
    for axis in range(len(whole)):
        inner = math.prod(whole[axis + 1 :])
        fits = all(
            part[:axis] == whole[:axis] and part[axis + 1 :] == whole[axis + 1 :] for part in parts
        )
        extents = [part[axis] for part in parts]
        if fits and sum(extents) == whole[axis] and math.prod(whole[:axis]) == 1:
            return [inner * sum(extents[:index]) for index in range(len(parts))]
    return None


class _Places:
    """Maps each tensor of a binding block to the concatenation result that contains it.

    `dropped`: by variable of the binding, the kernels whose calls are no longer needed.
    """

    def __init__(
        self,
        block: relax.BindingBlock,
        offsets: Mapping[tvm.ir.GlobalVar, list[int]],
        results: Collection[relax.Var],
    ) -> None:
        self.dropped: dict[relax.Var, tvm.ir.GlobalVar] = {}
        self._block = block
        self._allocations: dict[relax.Var, relax.VarBinding] = {}
        self._tensors: dict[relax.Var, relax.Var] = {}
        self._homes: dict[relax.Var, tuple[relax.Var, int]] = {}
        names: Counter[relax.Var] = Counter()
        calls = []
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Var) and value in self._tensors:
                self._tensors[binding.var] = self._tensors[value]
                names[self._tensors[value]] += 1
            elif _is_allocation(value):
                self._allocations[binding.var] = binding
                self._tensors[binding.var] = binding.var
            elif isinstance(value, tvm.ir.Call) and value.op in offsets:
                calls.append((binding.var, value))
        # Returned tensors own their memory; a tensor that a kernel changes in place has an alias.
        self._fixed = {self._tensors[var] for var in results if var in self._tensors}
        self._fixed |= {tensor for tensor, count in names.items() if count > 1}
        for var, call in reversed(calls):  # a result may be a part of a later one
            if self._place(call, offsets[call.op]):
                self.dropped[var] = call.op

    def _place(self, call: relax.Call, offsets: Sequence[int]) -> bool:
        """Try to make the operands of a concatenation parts of its result; True on success."""
        *parts, whole = (self._tensors.get(arg) for arg in call.args)
        if whole is None or None in parts or len(set(parts)) < len(parts):
            return False
        where = self._allocations[whole].value.args[1:]  # dtype, device and storage scope
        if any(not _alike(self._allocations[part].value.args[1:], where) for part in parts):
            return False
        if all(part not in self._homes and part not in self._fixed for part in parts):
            self._homes |= {part: (whole, offset) for part, offset in zip(parts, offsets)}
            return True
        # A later result has these parts too: this result becomes a part of it if they are adjacent.
        homes = [self._home(part) for part in parts]
        first = homes[0][1] - offsets[0]
        neighbors = [(homes[0][0], first + offset) for offset in offsets]
        if homes != neighbors or whole in self._homes or whole in self._fixed:
            return False
        self._homes[whole] = (homes[0][0], first)
        return True

    def _home(self, tensor: relax.Var) -> tuple[relax.Var, int]:
        """The tensor that owns the memory of a tensor, and the byte offset within it."""
        offset = 0
        while tensor in self._homes:
            tensor, start = self._homes[tensor]
            offset += start
        return tensor, offset

    def rewritten(self, move: tvm.ir.GlobalVar) -> relax.BindingBlock:
        """The block with views for parts, and without the calls of `dropped`."""
        if not self.dropped:
            return self._block
        bindings: list[relax.Binding] = []
        emitted: set[relax.Var] = set()

        def allocate(var: relax.Var) -> None:
            if var in emitted:
                return
            emitted.add(var)
            whole, offset = self._home(var)
            if whole is var:
                bindings.append(self._allocations[var])
                return
            allocate(whole)
            shape, start = self._allocations[var].value.args[0], tvm.tirx.IntImm("int64", offset)
            view = set_type(relax.op.memory.view(whole, shape, relative_byte_offset=start), var.ty)
            bindings.append(relax.VarBinding(var, view))
            if offset:
                nothing = relax.TupleType([])
                call = relax.Call(move, [var], ret_ty=nothing)
                bindings.append(relax.VarBinding(relax.Var("_", nothing), call))

        for binding in self._block.bindings:
            if binding.var in self._allocations:
                allocate(binding.var)
            elif binding.var not in self.dropped:
                bindings.append(binding)
        return relax.BindingBlock(bindings)


def _is_allocation(value: Any) -> bool:
    return isinstance(value, tvm.ir.Call) and value.op == tvm.ir.Op.get(
        "relax.builtin.alloc_tensor"
    )


def _alike(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return all(tvm_ffi.structural_equal(a, b) for a, b in zip(some, others, strict=True))


def _called_kernels(functions: Iterable[Any]) -> set[tvm.ir.GlobalVar]:
    return {
        binding.value.op
        for function in functions
        if isinstance(function, relax.Function)
        for block in function.body.blocks
        for binding in block.bindings
        if isinstance(binding.value, tvm.ir.Call) and isinstance(binding.value.op, tvm.ir.GlobalVar)
    }
