"""Select an implementation and a layout for every operator.

Anchors (convolutions, matrix products) go to the schedule library, which states the layouts
it wants; operators that work element by element, pooling and concatenation follow their
inputs' blocked layout; everything else gets plain tensors. Each value is converted where a
reader needs it, at most once per layout.

    conv2d(x) -> relu -> max_pool2d -> conv2d -> add(residual) -> mean -> reshape -> matmul
    NCHW3c?      [------------- NCHW16c, no conversion -----------------]   (N, C) for free
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target import Target

from schedules import strategy
from schedules.config import ConfigEntity
from schedules.x86.matmul import strassen

from ...ir.constants import static_shape
from ...ir.spans import source_name, with_call_sources
from ...primfuncs.kernel_operators import NamingBuilder
from ...records.autotvm.workload import digest
from ..graph_passes.batch_provenance import Provenance, provenance
from .context import LoweringContext
from .layout_cache import PLAIN, LayoutMap
from .layout_demand import block_of, worth_blocking
from .layout_rules import layout_rule
from .ops import low_bit_matmul, recurrent
from .ops.attention import find_attention, lower_attention
from .ops.conv1d import lower_conv1d, lower_conv1d_transpose
from .ops.conv2d import lower_conv2d
from .ops.conv2d_transpose import lower_conv2d_transpose
from .ops.conv3d import lower_conv3d
from .ops.conv3d_transpose import lower_conv3d_transpose
from .ops.gpu import is_gpu, lower_recorded
from .ops.matmul import lower_matmul
from .weight_packing import packing_in_background

logger = logging.getLogger("baton.lowering")

_CONVOLUTIONS = {
    "relax.nn.conv1d": lower_conv1d,
    "relax.nn.conv1d_transpose": lower_conv1d_transpose,
    "relax.nn.conv2d": lower_conv2d,
    "relax.nn.conv2d_transpose": lower_conv2d_transpose,
    "relax.nn.conv3d": lower_conv3d,
    "relax.nn.conv3d_transpose": lower_conv3d_transpose,
}
_ON_PLAIN_TENSORS = {
    "relax.matmul": lower_matmul,
    low_bit_matmul.NAME: low_bit_matmul.lower_matmul_of_bits,
    recurrent.NAME: recurrent.lower_recurrent,
}
_ANCHORS_ON_GPU = {name for name in _CONVOLUTIONS if "3d" not in name}


@mutator
class _Selector(PyExprMutator):
    def __init__(
        self,
        mod: tvm.IRModule,
        function: relax.Function,
        target: Target,
        query: strategy.Query | None,
        keep_layouts: bool,
        fuse_attention: bool,
        disabled: Collection[str],
        own_queries: Mapping[str, strategy.Query],
        rows_share_sample: Callable[[relax.Var], bool],
        may_round: bool,
        skipped: dict[tuple[str, bytes], str],
    ) -> None:
        super().__init__(mod)
        self.skipped = skipped
        self.rows_share_sample = rows_share_sample
        self.own_queries = own_queries
        self.keep_layouts = keep_layouts
        builder = self.named = NamingBuilder(self.builder_)
        self.layouts = LayoutMap(builder, self.visit_expr)
        self.attentions = find_attention(function) if fuse_attention else {}
        self.block = None if keep_layouts else block_of(target)
        self.wanted = worth_blocking(function, self.block) if self.block else set()
        definitions = {
            binding.var: binding.value
            for block in getattr(function.body, "blocks", ())
            for binding in block.bindings
            if isinstance(binding, relax.VarBinding)
        }
        self.context = LoweringContext(
            builder, self.layouts, target, query, disabled, definitions, may_round
        )

    def visit_dataflow_var_(self, op: relax.Var) -> relax.Expr:
        if op in self.layouts:
            return self.layouts.get(op, PLAIN)
        return super().visit_dataflow_var_(op)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call = binding.value
        self.named.source = source_name(call)
        lowered = None
        if binding.var in self.attentions:
            lowered = self._fuse_attention(binding.var)
        if lowered is None and isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op):
            query = self.own_queries.get(binding.var.name, self.context.query)
            pairs_rows = (
                () if self.rows_share_sample(binding.var) else (strassen.DENSE, strassen.CONV2D)
            )
            at = replace(self.context, disabled=(*self.context.disabled, *pairs_rows))
            lowered = self._lower_or_fall_back(call, at.asking(query))
        if lowered is None:
            super().visit_var_binding_(binding)
            if self.named.source:
                self.named.sources[self.visit_expr(binding.var)] = self.named.source
            if self.block and binding.var in self.wanted:
                self.layouts.get(binding.var, self.block)
            return
        self.layouts.define(binding.var, *lowered)
        if self.keep_layouts or not isinstance(binding.var, relax.DataflowVar):
            plain = self.layouts.get(binding.var, PLAIN)
        if not isinstance(binding.var, relax.DataflowVar):
            if self.builder_.current_block_is_dataflow():
                plain = self.builder_.emit_output(plain)
            self.set_var_remap(binding.var, plain)

    def _lower_or_fall_back(
        self, call: relax.Call, at: LoweringContext
    ) -> tuple[int, relax.Expr] | None:
        """Result of `_lower`, without the records whose configs can't be scheduled."""
        while True:
            asked = None if at.query is None else _AskedOnce(at.query, self.skipped)
            try:
                return self._lower(call, at.asking(asked))
            except _MISFITS as error:
                chosen = None if asked is None else asked.chosen
                if chosen is None:
                    raise
                reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
                if isinstance(error, KeyError):
                    reason = f"it has no knob {reason}"
                self.skipped[chosen] = reason
                name = str(call.op.name).removeprefix("relax.")
                logger.warning("%s: %s: the record can't be used: %s", name, chosen[0], reason)

    def _fuse_attention(self, result: relax.Var) -> tuple[int, relax.Expr] | None:
        kernel = lower_attention(self.context, self.attentions[result], self.own_queries)
        return None if kernel is None else (PLAIN, self.builder_.emit(kernel))

    def _lower(self, call: relax.Call, at: LoweringContext) -> tuple[int, relax.Expr] | None:
        """Channel block and new expression of a call; None to leave it to legalization."""
        name = call.op.name
        if is_gpu(at.target) and name in _ANCHORS_ON_GPU:
            conv = lower_recorded(self._on_plain_tensors(call), at)
            return None if conv is None else (PLAIN, conv)
        if name in _CONVOLUTIONS:
            return _CONVOLUTIONS[name](call, at)
        if name in _ON_PLAIN_TENSORS:
            kernel = _ON_PLAIN_TENSORS[name](self._on_plain_tensors(call), at)
            return None if kernel is None else (PLAIN, self.builder_.emit(kernel))
        rule = layout_rule(call)
        if rule is None or self.keep_layouts or static_shape(call) is None:
            return None
        return rule(at.builder, call, self.layouts)

    def _on_plain_tensors(self, call: relax.Call) -> relax.Call:
        plain = relax.Call(call.op, [self.visit_expr(arg) for arg in call.args], call.attrs)
        return self.builder_.normalize(plain)


_MISFITS = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors that templates raise for knobs that do not fit."""


class _AskedOnce:
    """A query for one operator that counts a record once, even if queried repeatedly.

    `skipped`: source and digest of the workload of each record that is not used.
    """

    def __init__(self, query: strategy.Query, skipped: Collection[tuple[str, bytes]]) -> None:
        self._query = query
        self._skipped = skipped
        self._answers: dict[bytes, ConfigEntity | None] = {}

    def __call__(self, target: Target, workload: tuple) -> ConfigEntity | None:
        key = digest(workload)
        if key not in self._answers:
            config = self._query(target, workload)
            unusable = config is not None and (config.source, key) in self._skipped
            self._answers[key] = None if unusable else config
        return self._answers[key]

    @property
    def chosen(self) -> tuple[str, bytes] | None:
        """Source and workload of the record that `strategy.select` chooses of those found."""
        found = [(config, key) for key, config in self._answers.items() if config is not None]
        if not found:
            return None
        config, key = min(found, key=lambda pair: strategy.rank(pair[0]))
        return config.source, key


def select_implementations(
    mod: tvm.IRModule,
    name: str,
    target: Target,
    query: strategy.Query | None = None,
    keep_layouts: bool = False,
    fuse_attention: bool = True,
    disabled: Collection[str] = (),
    own_queries: Mapping[str, strategy.Query] | None = None,
    known: Provenance | None = None,
    may_round: bool = False,
    skipped: dict[tuple[str, bytes], str] | None = None,
) -> tvm.IRModule:
    """Rewrite function `name` of the module.

    `query` looks up AutoTVM records in the active dispatch contexts; `own_queries` replace it by
    the variable of an operator's result. `keep_layouts`: plain layouts only (opt_level below 3, or
    AlterOpLayout disabled). `fuse_attention`: fuse attention if the library has a kernel.
    `disabled`: implementations not to choose. `known`: batch provenance, from before passes
    obscured it. `may_round`: weights may be rounded to float16 where that is faster. `skipped`: by
    source and digest of the workload, why a record is not used; unusable ones are added.
    """
    selector = _Selector(
        *(mod, mod[name], target, query, keep_layouts, fuse_attention, disabled),
        own_queries or {},
        (known or provenance(mod)).rows_share_sample(mod[name], name),
        may_round,
        {} if skipped is None else skipped,
    )
    gvar = mod.get_global_var(name)
    with packing_in_background():
        function = with_call_sources(selector.visit_expr(mod[name]), selector.named.sources)
    selector.builder_.update_func(gvar, function)
    return relax.transform.DeadCodeElimination([name])(selector.builder_.get())
