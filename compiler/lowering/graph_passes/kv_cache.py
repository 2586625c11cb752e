"""Write new rows of a KV cache in place into preallocated buffers.

    before   def main(ids, past_key (1, H, past, D)):
               key = concat(past_key, new, axis=2)                       (1, H, past + seq, D)
               return logits, key

    after    def main(ids, past_key (1, H, room, D), past (past,)):
               cache = append_rows(new, past, past_key), in place        (1, H, room, D)
               key = strided_slice(cache, axis=2, end=past + seq)
               return logits

An attention reads the buffer directly; for other operators the slice is a copy. The input `past`
carries the number of valid rows as its extent; its elements are unused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ...errors import BuildError
from ...ir import dynamic_shape, kv_cache
from ...ir.rewrite import operator_name
from ...primfuncs.fusion_pattern import ATTRIBUTE, OPAQUE
from ...runtime.metadata import OUTPUT_NAMES, KVCacheInfo
from ..offloaded_functions import new_global_var
from .kernel_error import give_up, set_error


def keep_kv_cache(mod: tvm.IRModule) -> tvm.IRModule:
    """Convert the cache that `with_kv_cache` requested to preallocated buffers.

    Raises BuildError: no result of `main` grows along such a symbol, rows are added in a way that
    is not supported, or `main` returns nothing but caches.
    """
    main = mod["main"]
    asked = kv_cache.asked(main)
    if asked is None:
        return mod
    group = _group(main, *asked)
    grown = group.results
    results = [each for each in _results(main) if each not in grown]
    if not results:
        raise BuildError("main returns nothing but caches that are kept; it needs a result")
    functions = dict(mod.functions_items())
    blocks = [type(block)(_bindings(block, group, functions)) for block in main.body.blocks]
    reads = [each.read_past() for each in grown.values()]
    blocks.insert(0, relax.DataflowBlock(reads))
    buffers = {each.past: each.buffer for each in grown.values()}
    params = [*(buffers.get(param, param) for param in main.params), group.taken]
    is_one = not isinstance(main.body.body, relax.Tuple)
    body = relax.SeqExpr(blocks, results[0] if is_one else relax.Tuple(results))
    ty = results[0].ty if is_one else relax.TupleType([result.ty for result in results])
    made = relax.Function(params, body, ty, main.is_pure, _attributes(main, group))
    functions[mod.get_global_var("main")] = made
    whole = tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
    whole = relax.transform.CanonicalizeBindings()(relax.transform.Normalize()(whole))
    return relax.transform.DeadCodeElimination(["main"])(whole)


@dataclass(eq=False)
class _Cache:
    """An input of `main`, and the result that appends rows to it."""

    past: relax.Var  # the input, and the rows
    new: relax.Expr
    axis: int  # axis of the rows
    buffer: relax.Var  # the buffer that replaces the input

    @property
    def rows(self) -> Any:
        """The number of new rows."""
        extent = self.new.ty.shape.values[self.axis]
        return int(extent) if isinstance(extent, tirx.IntImm) else extent

    def read_past(self) -> relax.VarBinding:
        """The valid rows of the buffer, for operators that read the old input."""
        return relax.VarBinding(self.past, self._first_rows(self.buffer, self.past))

    def grow(
        self, result: relax.Var, group: _Group, functions: dict[tvm.ir.GlobalVar, Any]
    ) -> list[relax.VarBinding]:
        """The bindings that replace the concatenation."""
        key = (str(self.new.ty), str(self.buffer.ty))
        if key not in group.kernels:
            kernel = self._append(group)
            name = f"append_rows_{group.name}_{len(group.kernels)}"
            group.kernels[key] = new_global_var(name, kernel.ty)
            functions[group.kernels[key]] = kernel
        gvar = group.kernels[key]
        written = relax.DataflowVar(f"{self.past.name}_grown", self.buffer.ty)
        operands = [self.new, group.taken, self.buffer]
        call = relax.op.call_tir_inplace(gvar, operands, [2], self.buffer.ty)
        return [
            relax.VarBinding(written, call),
            relax.VarBinding(result, self._first_rows(written, result)),
        ]

    def _first_rows(self, buffer: relax.Var, like: relax.Var) -> relax.Call:
        end = like.ty.shape.values[self.axis]
        return relax.op.strided_slice(buffer, [self.axis], [0], [end], assume_inbound=True)

    def _append(self, group: _Group) -> tirx.PrimFunc:
        """A kernel that appends rows to the valid ones; raises InputError if the buffer is full."""
        renamed = {symbol: tirx.Var(str(symbol.name), "int64") for symbol in self._symbols(group)}
        rows_shape = [renamed.get(extent, extent) for extent in self.new.ty.shape.values]
        taken = renamed[group.symbol]
        count = rows_shape[self.axis]
        dtype = str(self.buffer.ty.dtype)

        def write(ins: Any, outs: Any) -> Any:
            with IRBuilder() as builder:
                rows, buffer = T.buffer_proxy(ins[0]), T.buffer_proxy(outs[0])

                def copy(axis: int, at: tuple[Any, ...]) -> None:
                    if axis < len(rows_shape):
                        with T.serial(0, rows_shape[axis]) as here:
                            copy(axis + 1, (*at, here))
                        return
                    to = tuple(i + taken if k == self.axis else i for k, i in enumerate(at))
                    buffer[to] = rows[at]

                with T.seq_scope():
                    with T.If(taken + count > group.room), T.Then():
                        set_error(
                            "InputError",
                            [
                                f"input {self.past.name!r} has room for {group.room} rows, "
                                f"{group.name!r}, along axis {self.axis}; ",
                                *(taken, " are there, and ", count, " more came"),
                            ],
                        )
                        give_up()
                    copy(0, ())
                return builder.get()

        rows = te.placeholder(rows_shape, dtype, name="rows")
        rows_taken = te.placeholder((taken,), "int8", name="taken")
        out = te.extern(
            [list(self.buffer.ty.shape.values)],
            [rows, rows_taken],
            write,
            dtype=dtype,
            name="append_rows",
        )
        function = te.create_prim_func([rows, rows_taken, out], "int64")
        return function.without_attr("global_symbol").with_attr(ATTRIBUTE, OPAQUE)

    def _symbols(self, group: _Group) -> list[tirx.Var]:
        found = [e for e in self.new.ty.shape.values if isinstance(e, tirx.Var)]
        return list(dict.fromkeys([group.symbol, *found]))


@dataclass(eq=False)
class _Group:
    """The caches along one symbol."""

    symbol: tirx.Var
    name: str  # its name
    room: int  # rows that a buffer has room for
    taken: relax.Var  # the input whose extent says how many rows are there
    results: dict[relax.Var, _Cache]  # by the result of `main` that is no longer returned
    kernels: dict[tuple[str, str], tvm.ir.GlobalVar] = field(default_factory=dict)

    def info(self, names: Mapping[tirx.Var, str]) -> KVCacheInfo:
        caches = list(self.results.values())
        rows = caches[0].rows
        return KVCacheInfo(
            symbol=self.name,
            rows=self.taken.name,
            grows_by=rows if isinstance(rows, int) else names[rows],
            tensors=tuple((each.past.name, each.axis) for each in caches),
        )


def _results(main: relax.Function) -> list[relax.Expr]:
    body = main.body.body
    return list(body.fields) if isinstance(body, relax.Tuple) else [body]


def _group(main: relax.Function, name: str, room: int) -> _Group:
    """The caches along the symbol of a name. Raises BuildError: none, or unsupported growth."""
    symbol = next(each for each in dynamic_shape.in_order(main) if str(each.name) == name)
    bindings = {
        binding.var: binding.value for block in main.body.blocks for binding in block.bindings
    }
    caches = {}
    for result in _results(main):
        cache = _cache(main, bindings.get(result), symbol, room)
        if cache is not None:
            caches[result] = cache
    if not caches:
        raise BuildError(
            f"the model has no cache along {name!r}: no result of main is the concatenation of an "
            f"input that has this extent along one axis, all others known, and of new rows"
        )
    steps = {str(cache.rows) for cache in caches.values()}
    is_known = all(isinstance(cache.rows, (int, tirx.Var)) for cache in caches.values())
    if len(steps) > 1 or not is_known:
        raise BuildError(
            f"caches along {name!r} grow by {', '.join(sorted(steps))} rows; one number, or one "
            "symbol of the inputs, is supported"
        )
    names = {param.name for param in main.params}
    taken = name if name not in names else f"{name}_rows"
    return _Group(symbol, name, room, relax.Var(taken, relax.TensorType((symbol,), "int8")), caches)


def _cache(main: relax.Function, value: Any, symbol: tirx.Var, room: int) -> _Cache | None:
    """The cache that a result of `main` is; None for any other."""
    if value is None or operator_name(value) != "concat":
        return None
    parts = value.args[0].fields if isinstance(value.args[0], relax.Tuple) else []
    if len(parts) != 2 or not any(parts[0].same_as(param) for param in main.params):
        return None
    extents = list(parts[0].ty.shape.values)
    axis = int(value.attrs.axis) % len(extents)
    others = extents[:axis] + extents[axis + 1 :]
    if not extents[axis].same_as(symbol) or not all(isinstance(e, tirx.IntImm) for e in others):
        return None
    extents[axis] = tirx.const(room, "int64")
    ty = relax.TensorType(extents, parts[0].ty.dtype)
    return _Cache(parts[0], parts[1], axis, relax.Var(parts[0].name, ty))


def _bindings(
    block: relax.BindingBlock, group: _Group, functions: dict[tvm.ir.GlobalVar, Any]
) -> list[relax.Binding]:
    bindings = []
    for binding in block.bindings:
        cache = group.results.get(binding.var)
        grown = [binding] if cache is None else cache.grow(binding.var, group, functions)
        bindings += grown
    return bindings


def _attributes(main: relax.Function, group: _Group) -> tvm.ir.DictAttrs:
    """Attributes of `main` with the remaining result names and the KV cache."""
    known = dict(main.attrs or {})
    names = list(known.pop(OUTPUT_NAMES, ()))
    if len(names) == len(_results(main)):
        pairs = zip(names, _results(main))
        known[OUTPUT_NAMES] = [name for name, result in pairs if result not in group.results]
    if "num_input" in known:
        known["num_input"] = int(known["num_input"]) + 1
    known[kv_cache.KEPT] = kv_cache.as_attribute(group.info(dynamic_shape.names(main)))
    return tvm.ir.make_node("ir.DictAttrs", **known)
