"""`PackStorage`: pack a function's intermediate tensors into one storage, each at its own offset.

TVM's StaticPlanBlockMemory reuses each storage for several tensors in turn; a storage is as large
as its largest tensor. After that pass, before:

    s = alloc_storage(100);  a = alloc_tensor(s, 0, 100);  f(x, a)
    t = alloc_storage(100);  b = alloc_tensor(t, 0, 40);   g(a, b)
                             c = alloc_tensor(s, 0, 40);   h(b, c)
                             d = alloc_tensor(t, 0, 100);  k(c, d)

after:

    s = alloc_storage(140);  a = alloc_tensor(s, 0, 100);  f(x, a)
                             b = alloc_tensor(s, 100, 40); g(a, b)
                             c = alloc_tensor(s, 0, 40);   h(b, c)
                             d = alloc_tensor(s, 40, 100); k(c, d)

Kernels reject tensors with a byte offset. The kernel that ConcatInPlace uses for its views
therefore moves the pointer of each tensor that does not begin at the start of the storage.

A storage of dynamic size, such as the result of NonZero, stays a separate storage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import DataType, relax

from ...ir.constants import integers, static_shape
from ...ir.rewrite import operator_name, relax_functions, variables_of
from ...ir.scopes import with_blocks
from ...runtime.debugger.trace import MOVE_POINTER
from ..offloaded_functions import new_global_var
from .concat_in_place import ALIGNMENT, move_pointer

NAME = "PackStorage"

# Moving a pointer takes 0.02 us per inference, which fewer bytes do not justify.
LEAST_SAVED_BYTES = 1 << 17

_STORAGE, _TENSOR, _COPY = "memory.alloc_storage", "memory.alloc_tensor", "to_vdevice"


@dataclass(frozen=True)
class Lifetime:
    first: int  # steps between which the tensor needs its memory, both included
    last: int
    nbytes: int

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def live_bytes(lifetimes: Sequence[Lifetime]) -> int:
    """Peak number of live bytes: a lower bound for every plan."""
    changes: dict[int, int] = {}
    for each in lifetimes:
        changes[each.first] = changes.get(each.first, 0) + _aligned(each.nbytes)
        changes[each.last + 1] = changes.get(each.last + 1, 0) - _aligned(each.nbytes)
    most = now = 0
    for step in sorted(changes):
        now += changes[step]
        most = max(most, now)
    return most


def pack(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Choose the offset of each tensor in one storage; return the offsets and the storage's size.

    Each tensor goes into the smallest sufficient gap between the tensors that are live at the same
    time. Several orders are tried (by size, size times lifetime, lifetime, and first use); the
    order that needs the fewest bytes wins. Offsets are multiples of `ALIGNMENT`.
    """
    bound = live_bytes(lifetimes)
    best: tuple[list[int], int] | None = None
    indices = range(len(lifetimes))
    for order in (
        sorted(indices, key=lambda i: -lifetimes[i].nbytes),
        sorted(indices, key=lambda i: -lifetimes[i].nbytes * _steps(lifetimes[i])),
        sorted(indices, key=lambda i: (-_steps(lifetimes[i]), -lifetimes[i].nbytes)),
        sorted(indices, key=lambda i: lifetimes[i].first),
    ):
        offsets, nbytes = _placed(lifetimes, order)
        if best is None or nbytes < best[1]:
            best = offsets, nbytes
        if nbytes == bound:
            break
    assert best is not None
    return best


def _placed(lifetimes: Sequence[Lifetime], order: Sequence[int]) -> tuple[list[int], int]:
    """Offsets and size of the storage when tensors are placed in that order."""
    placed: list[tuple[int, int, Lifetime]] = []  # start, end, lifetime
    offsets = [0] * len(lifetimes)
    total = 0
    for index in order:
        own, size = lifetimes[index], _aligned(lifetimes[index].nbytes)
        end, gap, start = 0, math.inf, -1  # of those before; the smallest gap that is enough
        for begin, stop in sorted((b, s) for b, s, other in placed if own.meets(other)):
            if size <= begin - end < gap:
                gap, start = begin - end, end
            end = max(end, stop)
        offsets[index] = end if start < 0 else start
        placed.append((offsets[index], offsets[index] + size, own))
        total = max(total, offsets[index] + size)
    return offsets, total


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _steps(lifetime: Lifetime) -> int:
    return lifetime.last - lifetime.first + 1


@tvm.transform.module_pass(opt_level=0, name=NAME)
class PackStorage:
    """Replace the planned storages of a block and a device by one, where that saves memory."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        functions = dict(mod.functions_items())
        known = {gvar.name_hint: gvar for gvar in functions}
        move = known.get(MOVE_POINTER) or new_global_var(MOVE_POINTER, move_pointer().ty)
        changed = False
        for gvar, function in relax_functions(mod):
            blocks = [_packed(block, move) for block in function.body.blocks]
            if any(new is not old for new, old in zip(blocks, function.body.blocks, strict=True)):
                changed = True
                functions[gvar] = with_blocks(function, blocks)
        if not changed:
            return mod
        functions.setdefault(move, move_pointer())
        return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def storage_bytes(mod: tvm.IRModule, but: Sequence[str] = ()) -> tuple[int, int]:
    """Total bytes of known storages outside of `but`, and the number of dynamic storages."""
    calls = (
        binding.value
        for gvar, function in relax_functions(mod)
        if gvar.name_hint not in but
        for block in function.body.blocks
        for binding in block.bindings
    )
    sizes = [_storage_size(call) for call in calls if operator_name(call) == "vm.alloc_storage"]
    known = [size for size in sizes if size is not None]
    return sum(known), len(sizes) - len(known)


def _packed(block: relax.BindingBlock, move: tvm.ir.GlobalVar) -> relax.BindingBlock:
    """Pack the planned tensors of each device and kind of memory into one storage.

    The same block where that saves too little.
    """
    kinds: dict[tuple[str, str], dict[relax.Var, int]] = {}
    for binding in block.bindings:
        if operator_name(binding.value) == _STORAGE:
            size = _storage_size(binding.value)
            if size is not None:
                kind = str(binding.value.args[1]), str(binding.value.args[2])
                kinds.setdefault(kind, {})[binding.var] = size
    for sizes in kinds.values():
        lifetimes = _lifetimes(block, sizes)
        offsets, nbytes = pack(list(lifetimes.values()))
        if len(sizes) > 1 and sum(sizes.values()) - nbytes >= LEAST_SAVED_BYTES:
            places = dict(zip(lifetimes, offsets, strict=True))
            block = relax.BindingBlock(list(_rewritten(block, sizes, places, nbytes, move)))
    return block


def _lifetimes(
    block: relax.BindingBlock, sizes: Mapping[relax.Var, int]
) -> dict[relax.Var, Lifetime]:
    """Lifetimes, by variable, of the tensors in storages of known `sizes`; steps are bindings.

    A tensor with a dynamic extent occupies all of the storage that was planned for it.
    StaticPlanBlockMemory plans no tensor that is used outside its block. The result of any other
    binding that reads tensors, such as a view, counts as an alias of each of them. A copy
    on another device does not.
    """
    first: dict[relax.Var, int] = {}
    last: dict[relax.Var, int] = {}
    names: dict[relax.Var, set[relax.Var]] = {}
    nbytes: dict[relax.Var, int] = {}
    for step, binding in enumerate(block.bindings):
        used = [tensor for var in variables_of(binding.value) for tensor in names.get(var, ())]
        last |= dict.fromkeys(used, step)
        names[binding.var] = set() if operator_name(binding.value) == _COPY else set(used)
        if operator_name(binding.value) == _TENSOR and binding.value.args[0] in sizes:
            first[binding.var] = last[binding.var] = step
            names[binding.var] = {binding.var}
            whole = sizes[binding.value.args[0]]
            extents = static_shape(binding.var)
            nbytes[binding.var] = whole if extents is None else _tensor_size(binding.var, extents)
    return {var: Lifetime(start, last[var], nbytes[var]) for var, start in first.items()}


def _rewritten(
    block: relax.BindingBlock,
    sizes: Mapping[relax.Var, int],
    offsets: Mapping[relax.Var, int],
    nbytes: int,
    move: tvm.ir.GlobalVar,
) -> Iterator[relax.Binding]:
    """The bindings, with one storage before the first tensor."""
    storage: relax.Var | None = None
    for binding in block.bindings:
        if binding.var in sizes:
            if storage is None:
                _, *others = binding.value.args
                size = relax.ShapeExpr([nbytes])
                storage = relax.Var("storage", binding.var.ty)
                yield relax.VarBinding(storage, _with_args(binding.value, [size, *others]))
        elif binding.var in offsets:
            offset = offsets[binding.var]
            _, _, *others = binding.value.args
            args = [storage, tvm.tirx.IntImm("int64", offset), *others]
            yield relax.VarBinding(binding.var, _with_args(binding.value, args))
            if offset:
                nothing = relax.TupleType([])
                moved = relax.Call(move, [binding.var], ret_ty=nothing)
                yield relax.VarBinding(relax.Var("_", nothing), moved)
        else:
            yield binding


def _with_args(call: relax.Call, args: Sequence[Any]) -> relax.Call:
    return relax.Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty)


def _tensor_size(var: relax.Var, extents: Sequence[int]) -> int:
    return math.prod(extents) * DataType(str(var.ty.dtype)).itemsize


def _storage_size(call: Any) -> int | None:
    """Bytes of a storage; None if they are dynamic."""
    sizes = integers(call.args[0].values) if isinstance(call.args[0], relax.ShapeExpr) else None
    return None if sizes is None else sizes[0]
