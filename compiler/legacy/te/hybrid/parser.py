"""From a hybrid function and its arguments to statements of TIR over buffers."""

from __future__ import annotations

import ast
from collections import Counter
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Range, StringImm, is_prim_expr
from tvm.tirx import IterVar
from tvm.tirx.buffer import is_buffer_var

from .expressions import Blocks, Expressions, Scalar
from .functions import SYMBOLIC, LoopRange, as_expr
from .source import Source

_KINDS = {
    "serial": (tirx.ForKind.SERIAL, IterVar.DataPar),
    "parallel": (tirx.ForKind.PARALLEL, IterVar.Parallelized),
    "vectorize": (tirx.ForKind.VECTORIZED, IterVar.Vectorized),
    "unroll": (tirx.ForKind.UNROLLED, IterVar.Unrolled),
}


class Parser(Expressions):
    """Makes the statements of one call of a hybrid function.

    `arguments`: buffers, expressions, and known values. `caller`: another function, whose
    statements these become. `outputs`: what it returns, in order.
    """

    def __init__(self, source: Source, arguments: list[Any], caller: Parser | None = None) -> None:
        super().__init__(source)
        self.blocks: Blocks = Blocks() if caller is None else caller.blocks
        self.loops: list[Any] = [] if caller is None else caller.loops
        self.threads: dict[str, Any] = {} if caller is None else caller.threads
        self.outputs: list[Any] = []
        self._is_inlined = caller is not None
        self._declared: list[Any] = []
        self._writes = Counter(
            node.id
            for node in ast.walk(source.node)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
        names_before = self.blocks.names
        self.blocks.names = dict(zip(source.parameters, arguments))
        for statement in source.node.body:
            self.visit(statement)
        self.blocks.names = names_before
        self._check_outputs()

    def statement(self) -> Any:
        """All that it does, in the threads that it binds."""
        body = self.blocks.get()
        for thread in reversed(list(self.threads.values())):
            body = tirx.AttrStmt(thread, "thread_extent", thread.dom.extent, body)
        return body

    def _check_outputs(self) -> None:
        if not self.outputs:
            self.refuse(self.source.node, "it returns nothing; return what output_tensor made")
        for buffer in self._declared:
            if not any(buffer.same_as(output) for output in self.outputs):
                self.refuse(self.source.node, f"the output tensor {buffer.name} is not returned")

    # --- names ---------------------------------------------------------------------------

    def lookup(self, node: ast.Name) -> Any:
        name = node.id
        if name in self.blocks.names:
            return self.blocks.names[name]
        for known in (self.source.closure, SYMBOLIC, self.source.globals):
            if name in known:
                return known[name]
        self.refuse(node, f"{name} is not defined here; a name ends with the block that defines it")

    def make_buffer(
        self, node: ast.Call, kind: str, shape: Any, dtype: str = "float32", scope: str = "global"
    ) -> Any:
        shape = list(shape) if isinstance(shape, (tuple, list)) else [shape]
        name = getattr(node, "target_name", kind)
        scope = "" if kind == "output_tensor" or scope == "global" else scope
        shape = [as_expr(extent) for extent in shape]
        buffer = tirx.decl_buffer(shape, str(dtype), name, scope=scope, layout=None)
        if kind == "output_tensor":
            self._declared.append(buffer)
        if kind == "allocate" or self._is_inlined:
            self.blocks.emit(tirx.AllocBuffer(buffer))
        return buffer

    def call_script(self, node: ast.Call, function: Any, args: list[Any]) -> Any:
        inlined = Parser(function.hybrid_source(), args, caller=self)
        outputs = tuple(inlined.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    # --- assignments ---------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            self.refuse(node, "one assignment at a time")
        target = node.targets[0]
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Call):
            node.value.target_name = target.id  # type: ignore[attr-defined]
        value = self.visit(node.value)
        if isinstance(target, ast.Tuple):
            if not isinstance(value, (tuple, list)) or len(value) != len(target.elts):
                self.refuse(node, f"{ast.unparse(target)} needs {len(target.elts)} values")
            for each, part in zip(target.elts, value):
                self._assign(each, part)
        else:
            self._assign(target, value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        before = self.visit(node.target)
        self._assign(node.target, self.binary(node, node.op, before, self.visit(node.value)))

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Subscript):
            buffer, indices = self.place(target)
            if not is_buffer_var(buffer) or not indices:
                self.refuse(target, f"{ast.unparse(target)} is no element of an array")
            self._store(buffer, value, indices)
        elif isinstance(target, ast.Name):
            self._assign_name(target, value)
        else:
            self.refuse(target, f"{ast.unparse(target)} can't be assigned to")

    def _assign_name(self, target: ast.Name, value: Any) -> None:
        """Give a name to a value; one that changes is kept in an array of one element."""
        name = target.id
        is_number = is_prim_expr(value) or isinstance(value, (int, float))
        if self._writes[name] == 1 or not is_number:
            if is_prim_expr(value):
                var = tirx.Var(name, str(value.ty.dtype))
                self.blocks.emit(tirx.Bind(var, value))
                value = var
            self.blocks.names[name] = value
            return
        scalar = self.blocks.names.get(name)
        if not isinstance(scalar, Scalar):
            dtype = str(as_expr(value).ty.dtype)
            scalar = Scalar(tirx.decl_buffer([1], dtype, name, scope="local", layout=None))
            self.blocks.declare(name, scalar)
        self._store(scalar.buffer, value, [0])

    def _store(self, buffer: Any, value: Any, indices: list[Any]) -> None:
        if is_prim_expr(value) and str(value.ty.dtype) != str(buffer.dtype):
            value = value.astype(str(buffer.dtype))
        elif not is_prim_expr(value):
            value = tirx.const(value, str(buffer.dtype))
        self.blocks.emit(tirx.BufferStore(buffer, value, indices))

    # --- control flow --------------------------------------------------------------------

    def visit_For(self, node: ast.For) -> None:
        loop = self.visit(node.iter)
        if not isinstance(loop, LoopRange) or not isinstance(node.target, ast.Name):
            self.refuse(node, "a loop is `for i in range(...)`, or one of the other kinds")
        if node.orelse:
            self.refuse(node, "a loop has no else")
        if loop.kind == "const_range":
            self._unrolled(node, node.target.id, loop)
        elif loop.kind == "bind":
            self._in_thread(node, node.target.id, loop)
        else:
            self._loop(node, node.target.id, loop)

    def _unrolled(self, node: ast.For, name: str, loop: LoopRange) -> None:
        if not isinstance(loop.low, int) or not isinstance(loop.high, int):
            self.refuse(node, f"const_range needs constants, not {loop.low} and {loop.high}")
        for value in range(loop.low, loop.high, loop.step):
            self.blocks.names[name] = value
            self._visit_all(node.body)

    def _in_thread(self, node: ast.For, name: str, loop: LoopRange) -> None:
        extent = as_expr(loop.high)
        thread = self.threads.get(loop.thread)
        if thread is None:
            var = tirx.Var(name, str(extent.ty.dtype))
            dom = Range(tirx.const(0, str(extent.ty.dtype)), extent)
            thread = IterVar(dom, var, IterVar.ThreadIndex, loop.thread)
            self.threads[loop.thread] = thread
        elif not tvm_ffi.structural_equal(thread.dom.extent, extent):
            self.refuse(node, f"{loop.thread} has {thread.dom.extent} threads already")
        self.blocks.names[name] = thread.var
        self._visit_all(node.body)

    def _loop(self, node: ast.For, name: str, loop: LoopRange) -> None:
        if not isinstance(loop.step, int) or loop.step < 1:
            self.refuse(node, f"the step of a loop is a positive constant, not {loop.step}")
        low, high = as_expr(loop.low), as_expr(loop.high)
        is_from_0 = isinstance(low, tirx.IntImm) and int(low) == 0
        extent = high if is_from_0 else as_expr(loop.high - loop.low)
        if loop.step > 1:
            extent = tirx.ceildiv(extent, loop.step)
        dtype = str(extent.ty.dtype)
        low = low.astype(dtype)
        kind, iter_type = _KINDS[loop.kind]
        first = low if loop.step == 1 else tirx.const(0, dtype)
        var = tirx.Var(name, dtype)
        self.blocks.open(is_loop=True)
        self.loops.append(IterVar(Range.from_min_extent(first, extent), var, iter_type))
        self.blocks.names[name] = var if loop.step == 1 else low + var * loop.step
        self._visit_all(node.body)
        self.blocks.emit(tirx.For(var, first, extent, kind, self.blocks.close()))

    def visit_If(self, node: ast.If) -> None:
        condition = self.visit(node.test)
        if not is_prim_expr(condition):
            self._visit_all(node.body if condition else node.orelse)
            return
        then = self._block(node.body)
        otherwise = self._block(node.orelse) if node.orelse else None
        self.blocks.emit(tirx.IfThenElse(condition, then, otherwise))

    def _block(self, body: list[ast.stmt]) -> Any:
        self.blocks.open(is_loop=False)
        self._visit_all(body)
        return self.blocks.close()

    def _visit_all(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.visit(statement)

    # --- other statements ----------------------------------------------------------------

    def visit_Assert(self, node: ast.Assert) -> None:
        message = self.visit(node.msg) if node.msg is not None else "assert failed"
        condition = as_expr(self.visit(node.test))
        kind, parts = StringImm("RuntimeError"), [StringImm(str(message))]
        self.blocks.emit(tirx.AssertStmt(condition, kind, parts))

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # else a docstring
            value = self.visit(node.value)
            if is_prim_expr(value):
                self.blocks.emit(tirx.Evaluate(value))

    def visit_Pass(self, node: ast.Pass) -> None:
        """Nothing."""

    def visit_Return(self, node: ast.Return) -> None:
        if node is not self.source.node.body[-1] or node.value is None:
            self.refuse(node, "return stands at the end, and returns the output tensors")
        value = self.visit(node.value)
        self.outputs = list(value) if isinstance(value, (tuple, list)) else [value]
        for each in self.outputs:
            if not is_buffer_var(each) or not any(each.same_as(made) for made in self._declared):
                self.refuse(node, f"{each} is not of output_tensor, which alone can be returned")
