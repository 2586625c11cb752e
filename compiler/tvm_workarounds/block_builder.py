"""Relax's BlockBuilder for functions that several threads build at once.

TVM 0.27 keeps the builders with open functions on one process-wide list and treats the last one as
current. A thread that opens a function while another does the same gets the wrong builder or
fails. The builder here keeps no such list. `BlockBuilder.current()`, which finds the builder for
TVM's `nn` modules, therefore does not know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

__all__ = ["BlockBuilder"]


class BlockBuilder(relax.BlockBuilder):
    """TVM's BlockBuilder without `current()`."""

    def _enter_function_scope(self, scope: Any) -> None:
        self._func_stack.append(scope)
        self.begin_scope(scope._params)
        self._begin_binding_block()

    def _exit_function_scope(self, kind: Any, error: Any, trace: Any) -> None:
        scope = self._func_stack.pop()
        if kind is None and not scope._is_emit_func_output_called:
            raise RuntimeError(f"function {scope._name} was left without emit_func_output")

    def emit_func_output(
        self, output: Any, params: Sequence[relax.Var] | None = None
    ) -> tvm.ir.GlobalVar:
        """Add the open function with result `output`; `params` if it was opened without."""
        scope = self._func
        if scope._is_emit_func_output_called or (scope._params is None) == (params is None):
            raise RuntimeError(f"function {scope._name} needs one output, and its parameters once")
        scope._is_emit_func_output_called = True
        if params is not None:
            scope._params = list(params)
        last = self._end_block()
        blocks = [*scope._blocks, last] if len(last.bindings) else scope._blocks
        body = relax.SeqExpr(blocks, self._normalize_python_tuple(output))
        self.begin_scope(scope._params)  # defines symbolic extents of parameters passed late
        try:
            body = self.normalize(body)
        finally:
            self.end_scope()
        function = relax.Function(scope._params, body, is_pure=scope._is_pure)
        self.end_scope()
        return self.add_func(function.with_attrs(scope._attrs), scope._name)
