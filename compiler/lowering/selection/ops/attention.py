"""Recognize attention among plain operators and lower it to one kernel.

    permute_dims(matmul(softmax(matmul(q, k) * scale + mask), v)) -> reshape

The scale (also as a division, or a factor of q and one of k) is optional. There may be any number
of masks. A select between the scores and a number is a mask, too:

    where(allowed, scores, -inf)

A permutation and reshape that join the heads are fused: the kernel writes its result in that order.
Exporters may replace NaNs after the softmax by zeros, for rows in which the mask leaves no key:

    where(isnan(softmax(...)), 0, softmax(...))

The softmax between half-precision matmuls may be in float32, with casts around it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, Op
from tvm.target import Target

import schedules.cuda.attention.attention  # noqa: F401  (registers its implementation)
from schedules import strategy
from schedules.attention import AttentionWorkload, Entry, Heads, Mask
from schedules.config import ConfigEntity
from schedules.matmul import BatchMatmulWorkload, Operand, broadcast
from schedules.x86.attention import attention_rows

from ....ir import dynamic_shape as symbols
from ....ir.constants import array_of, dtype_of, integers, scalar_of, static_shape
from ....ir.rewrite import expressions_in
from ....primfuncs import fusion_pattern
from ..context import LoweringContext
from ..layout_cache import PLAIN
from .dynamic_attention import attention_of_symbols, renamed, symbols_in

LOWEST = -1e30
"""Scores of masks that hide a key are at most this, if they are not -inf."""
HEADS_BEHIND_ROWS = (0, 2, 1, 3)
DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Attention:
    """One attention of a function: its operands, as expressions of that function."""

    q: relax.Expr
    k: relax.Expr
    v: relax.Expr
    masks: tuple[relax.Expr, ...]
    workload: AttentionWorkload
    products: tuple[relax.Var, relax.Var]  # variables: the scores, softmax times values


def find_attention(function: relax.Function) -> dict[relax.Var, Attention]:
    """Every attention of a function, by the variable that holds its result.

    All tensors must have one floating-point dtype, and the values between the operators must have
    no other reader. Workloads of functions with dynamic extents contain them as expressions.
    """
    if symbols.of_types(function):
        return attention_of_symbols(function, _find_static)
    return {var: _with_diagonal(found) for var, found in _find_static(function).items()}


def _find_static(function: relax.Function) -> dict[relax.Var, Attention]:
    bodies = Bindings(function)
    found = {}
    for var, value in bodies.values.items():
        attention = _match(bodies, var, value)
        if attention is None:
            continue
        joined = _join_heads(bodies, var, attention)
        found[joined[0] if joined else var] = joined[1] if joined else attention
    return found


def _with_diagonal(attention: Attention) -> Attention:
    """The attention with the causal diagonal of its masks, if constants prove one."""
    w, known = attention.workload, []
    for at, (tensor, mask) in enumerate(zip(attention.masks, w.masks, strict=True)):
        # A number that replaces the score later may give a hidden key weight again.
        if all(later.fill in (None, -math.inf) for later in w.masks[at + 1 :]):
            known.append(_diagonal(tensor, mask, len(w.masks) == 1, (w.s, w.t)))
    found = [diagonal for diagonal in known if diagonal is not None]
    return replace(attention, workload=replace(w, diagonal=min(found))) if found else attention


def _diagonal(tensor: Any, mask: Mask, alone: bool, shape: tuple[int, int]) -> int | None:
    """The farthest key after its query's index that a constant mask does not hide.

    Hidden keys weigh exactly 0: their scores are -inf, or the only mask has the lowest number for
    them and another key in each row. None where the mask hides no key after a diagonal.
    """
    data = array_of(tensor)
    if data is None or tuple(mask.shape[-2:]) != shape:
        return None
    if mask.fill is None:
        scores = data.astype("float64")
    else:
        scores = np.where(data != mask.hides, 0.0, mask.fill)
    hidden = scores <= (LOWEST if alone else -np.inf)
    if not (scores[hidden] == -np.inf).all() and hidden.all(-1).any():
        return None
    rows, columns = np.nonzero(~hidden.reshape(-1, *shape).all(0))
    diagonal = max(0, int((columns - rows).max(initial=0)))
    return diagonal if diagonal < shape[1] - 1 else None


def choose_kernel(
    attention: Attention,
    target: Target,
    query: strategy.Query | None = None,
    own_queries: Mapping[str, strategy.Query] | None = None,
    disabled: Collection[str] = (),
) -> tuple[strategy.Implementation, ConfigEntity] | None:
    """Choose the kernel for an attention, and its config; None to keep the operators separate.

    `query` looks up AutoTVM records; `own_queries` replace it by the variable of an operator's
    result. A record for one of the two products is an explicit choice: they stay apart.
    """
    w = attention.workload
    if symbols_in(w):
        return strategy.select(attention_rows.OPERATOR, w, target, None, disabled)
    scores = BatchMatmulWorkload(w.q.operand, w.k.operand)
    product = BatchMatmulWorkload(Operand.plain((*w.batch, w.s, w.t)), w.v.operand)
    for var, workload in zip(attention.products, (scores, product)):
        asked = (own_queries or {}).get(var.name, query)
        if asked is None or w.k.repeats != 1 or w.v.repeats != 1:
            continue
        chosen = strategy.select("nn.batch_matmul", workload, target, asked)
        if chosen is not None and not chosen[1].is_fallback:
            return None
    return strategy.select("attention", w, target, None, disabled)


def lower_attention(
    at: LoweringContext,
    attention: Attention,
    own_queries: Mapping[str, strategy.Query] | None = None,
) -> relax.Expr | None:
    """The call of the kernel, not yet emitted; None where `choose_kernel` finds none."""
    workload = attention.workload
    chosen = choose_kernel(attention, at.target, at.query, own_queries, at.disabled)
    if chosen is None:
        return None
    implementation, config = chosen
    operands = [attention.q, attention.k, attention.v, *attention.masks]
    symbols = symbols_in(workload)

    def compute(own_symbols: Any, *tensors: Any) -> Any:
        own = renamed(workload, list(zip(symbols, own_symbols)))
        return implementation.compute(own, config, *tensors)

    return at.builder.call_te(
        compute,
        symbols,
        *(at.layouts.get(operand, PLAIN) for operand in operands),
        primfunc_name_hint="attention",
        primfunc_attrs={fusion_pattern.ATTRIBUTE: fusion_pattern.OPAQUE}
        | _counted(workload, implementation, at.target),
    )


def _counted(
    workload: AttentionWorkload, implementation: strategy.Implementation, target: Target
) -> dict[str, int | float]:
    """Add the operation count for TVM, which can't count kernels written as TIR, and their time."""
    if workload.flops is None:
        return {}
    found: dict[str, int | float] = {"estimated_flops": workload.flops}
    if implementation.seconds is not None:
        found[strategy.PREDICTED_SECONDS_ATTR] = implementation.seconds(workload, target)
    return found


class Bindings:
    """Definitions and readers of a function's variables."""

    def __init__(self, function: relax.Function) -> None:
        self.values: dict[relax.Var, relax.Expr] = {}
        self._uses: Counter[relax.Var] = Counter()
        self._readers: dict[relax.Var, relax.Var] = {}
        for block in function.body.blocks:
            for binding in block.bindings:
                self.values[binding.var] = binding.value
                self._count(binding.value, binding.var)
        self._count(function.body.body, None)

    def _count(self, expr: Any, reader: relax.Var | None) -> None:
        for part in expressions_in(expr):
            if isinstance(part, relax.Var):
                self._uses[part] += 1
                if reader is not None:
                    self._readers[part] = reader

    def call(self, expr: Any, name: str, only_reader: bool = True) -> Call | None:
        """The call of operator `name` that defines a variable; None if it is none."""
        value = self.values.get(expr) if isinstance(expr, relax.Var) else None
        if not _calls(value, name) or (only_reader and self._uses[expr] != 1):
            return None
        return value

    def uses(self, var: Any) -> int:
        return self._uses[var]

    def reader(self, var: relax.Var, name: str) -> tuple[relax.Var, Call] | None:
        """The only reader of a variable if it is a call of operator `name`, and its result."""
        result = self._readers.get(var)
        if result is None or self._uses[var] != 1 or not _calls(self.values[result], name):
            return None
        return result, self.values[result]


def _calls(value: Any, name: str) -> bool:
    return isinstance(value, Call) and value.op == Op.get(f"relax.{name}")


def _match(bodies: Bindings, var: relax.Var, product: Any) -> Attention | None:
    """The attention that ends with a product of softmax and values."""
    if not _calls(product, "matmul"):
        return None
    softmax, nan_is_zero = _softmax(bodies, _uncast(bodies, product.args[0]))
    shape = static_shape(product.args[0])
    if softmax is None or shape is None or int(softmax.attrs.axis) not in (-1, len(shape) - 1):
        return None
    found = _unmasked(bodies, _uncast(bodies, softmax.args[0]))
    if found is None:
        return None
    scores, scale, masks = found
    (left, left_scale), (right, right_scale) = (
        _unscaled(bodies, operand) for operand in bodies.values[scores].args
    )
    scale *= left_scale * right_scale
    tensors = (left, right, product.args[1])
    shapes = [static_shape(tensor) for tensor in tensors]
    if not math.isfinite(scale):
        return None
    if any(s is None or len(s) < 3 or 0 in s for s in shapes) or static_shape(scores) != shape:
        return None
    dtype = dtype_of(product)
    if dtype not in DTYPES or any(dtype_of(tensor) != dtype for tensor in tensors):
        return None
    (q, q_heads), (k, k_heads), (v, v_heads) = (_heads(bodies, tensor) for tensor in tensors)
    if not all(_fits(tensor, mask, shape, dtype_of(scores)) for tensor, mask in masks):
        return None
    workload = AttentionWorkload(
        *(q_heads, k_heads, v_heads, tuple(mask for _, mask in masks), scale),
        nan_is_zero=nan_is_zero,
        dtype=dtype,
    )
    if workload.batch != shape[:-2]:
        return None
    return Attention(q, k, v, tuple(tensor for tensor, _ in masks), workload, (scores, var))


def _uncast(bodies: Bindings, tensor: Any) -> Any:
    """A float tensor before a cast that has no other use."""
    cast = bodies.call(tensor, "astype")
    return cast.args[0] if cast is not None and dtype_of(cast.args[0]) in DTYPES else tensor


def _softmax(bodies: Bindings, weights: Any) -> tuple[Call | None, bool]:
    """(the softmax if it has no other use, whether its NaNs become zeros)"""
    chosen = bodies.call(weights, "where")
    if chosen is None:
        return bodies.call(weights, "nn.softmax"), False
    condition, zero, value = chosen.args
    is_nan = bodies.call(condition, "isnan")
    alike = is_nan is not None and is_nan.args[0].same_as(value) and bodies.uses(value) == 2
    if not alike or scalar_of(zero) != 0.0 or static_shape(value) != static_shape(weights):
        return None, False
    return bodies.call(value, "nn.softmax", only_reader=False), True


def _unmasked(
    bodies: Bindings, scores: Any
) -> tuple[Any, float, tuple[tuple[Any, Mask], ...]] | None:
    """(the product that scores are made of, its scale, masks with their tensors in order)"""
    product, scale = _unscaled(bodies, scores)
    if bodies.call(product, "matmul") is not None:
        return product, scale, ()
    for inner, tensor, mask in _masked(bodies, scores):
        found = _unmasked(bodies, inner)
        if found is not None:
            return (*found[:2], (*found[2], (tensor, mask)))
    return None


def _masked(bodies: Bindings, scores: Any) -> Iterator[tuple[Any, Any, Mask]]:
    """(what may be the scores, the tensor, the mask) of each way to read what defines scores."""
    total = bodies.call(scores, "add")
    if total is not None:
        for inner, mask in (tuple(total.args), tuple(total.args)[::-1]):
            tensor = _narrow(bodies, mask)
            yield inner, tensor, Mask(static_shape(tensor) or ())
    chosen = bodies.call(scores, "where")
    if chosen is not None:
        condition, *values = chosen.args
        tensor = _narrow(bodies, condition)
        for inner, other, hides in ((*values, False), (*values[::-1], True)):
            fill = scalar_of(other)
            is_number = fill is not None and not math.isnan(fill)
            if is_number and static_shape(inner) == static_shape(scores):
                yield inner, tensor, Mask(static_shape(tensor) or (), fill, hides)


def _narrow(bodies: Bindings, mask: Any) -> Any:
    """A mask before it was repeated to the shape of the scores."""
    repeated = bodies.call(mask, "broadcast_to", only_reader=False)
    return mask if repeated is None else repeated.args[0]


def _unscaled(bodies: Bindings, scores: Any) -> tuple[Any, float]:
    """(scores before a multiplication by or division by a number, the factor)"""
    product = bodies.call(scores, "multiply")
    if product is not None:
        for inner, number in (tuple(product.args), tuple(product.args)[::-1]):
            factor = scalar_of(number)
            if factor is not None and static_shape(inner) == static_shape(scores):
                return inner, factor
    quotient = bodies.call(scores, "divide")
    if quotient is not None:
        divisor = scalar_of(quotient.args[1])
        if divisor and static_shape(quotient.args[0]) == static_shape(scores):
            return quotient.args[0], 1.0 / divisor
    return scores, 1.0


def _fits(tensor: Any, mask: Mask, scores: tuple[int, ...], dtype: str) -> bool:
    """Whether the tensor of a mask has the right type and fits the scores."""
    if static_shape(tensor) is None or dtype_of(tensor) != mask.dtype(dtype):
        return False
    return len(mask.shape) <= len(scores) and broadcast(mask.shape, scores) == scores


def _heads(bodies: Bindings, tensor: Any) -> tuple[Any, Heads]:
    """The tensor behind permutations, the choice of an entry (of stacked q, k and v), and the
    reshape that splits heads off; and how to read it."""
    shape = static_shape(tensor)
    assert shape is not None
    axes, tensor = _unpermuted(bodies, tensor, tuple(range(len(shape))))
    shared = _shared(bodies, tensor) if axes[:2] == (0, 1) and len(axes) == 4 else None
    if shared is not None:
        group, repeats = shared
        tensor, heads = _heads_behind(bodies, group, axes)
        return tensor, replace(heads, repeats=repeats)
    return _heads_behind(bodies, tensor, axes)


def _heads_behind(bodies: Bindings, tensor: Any, axes: tuple[int, ...]) -> tuple[Any, Heads]:
    """The buffer and heads of a tensor whose matrix axes are `axes`."""
    axes, tensor = _unpermuted(bodies, tensor, axes)
    buffer = _first_of(bodies, tensor)
    if buffer is not None:
        return buffer, Heads(Operand(static_shape(tensor) or (), axes))
    stacked = _of_stack(bodies, tensor, axes)
    if stacked is not None:
        tensor, heads = stacked
    else:
        stored = static_shape(tensor)
        assert stored is not None
        heads = Heads(Operand(stored, axes))
    split = bodies.call(tensor, "reshape", only_reader=False)
    if split is not None:
        for joined in (2, 3):
            reshaped = replace(heads, joined=joined)
            if reshaped.tensor_shape == static_shape(split.args[0]):
                return split.args[0], reshaped
    return tensor, heads


def _shared(bodies: Bindings, tensor: Any) -> tuple[Any, int] | None:
    """Heads (b, g, t, d) of which each is repeated to heads (b, g * n, t, d), and n."""
    joined = bodies.call(tensor, "reshape", only_reader=False)
    repeated = None if joined is None else bodies.call(joined.args[0], "broadcast_to")
    if repeated is None:
        return None
    inserted = repeated.args[0]
    call = bodies.call(inserted, "expand_dims")
    call = bodies.call(inserted, "reshape") if call is None else call
    if call is None:
        return None
    group, wide = static_shape(call.args[0]), static_shape(repeated)
    if group is None or wide is None or len(group) != 4 or len(wide) != 5:
        return None
    batch, heads, repeats = wide[:3]
    is_inserted = static_shape(inserted) == (batch, heads, 1, *group[2:])
    is_joined = static_shape(tensor) == (batch, heads * repeats, *group[2:])
    is_alike = group[:2] == (batch, heads) and wide[3:] == group[2:]
    return (call.args[0], repeats) if is_inserted and is_joined and is_alike else None


def _first_of(bodies: Bindings, tensor: Any) -> Any | None:
    """The buffer that a tensor is the beginning of, along every axis."""
    cut = bodies.call(tensor, "strided_slice", only_reader=False)
    if cut is None:
        return None
    _, _, begin, _, *strides = cut.args
    if any(set(integers(part.fields) or ()) != {1} for part in strides):
        return None
    return cut.args[0] if set(integers(begin.fields) or ()) == {0} else None


def _of_stack(bodies: Bindings, tensor: Any, axes: tuple[int, ...]) -> tuple[Any, Heads] | None:
    """The stacked tensor that holds a permuted tensor as one entry, and how to read it there."""
    entry = _entry(bodies, tensor)
    if entry is None:
        return None
    others = [axis for axis in range(len(axes) + 1) if axis != entry.axis]
    wanted = (entry.axis, *(others[axis] for axis in axes))
    (at, *rest), stack = _unpermuted(bodies, bodies.values[tensor].args[0], wanted)
    stored = static_shape(stack)
    if stored is None or at == len(axes):  # entries of the last axis are not vectors
        return None
    operand = Operand((*stored[:at], *stored[at + 1 :]), tuple(a - (a > at) for a in rest))
    return stack, Heads(operand, entry=replace(entry, axis=at))


def _unpermuted(
    bodies: Bindings, tensor: Any, axes: tuple[int, ...]
) -> tuple[tuple[int, ...], Any]:
    """The axes of a tensor before its permutations, and that tensor."""
    while (call := bodies.call(tensor, "permute_dims", only_reader=False)) is not None:
        order = call.attrs.axes
        inner = tuple(reversed(range(len(axes)))) if order is None else tuple(map(int, order))
        axes, tensor = tuple(inner[axis] for axis in axes), call.args[0]
    return axes, tensor


def _entry(bodies: Bindings, tensor: Any) -> Entry | None:
    """The operand of a `take` with one number as its index."""
    taken = bodies.call(tensor, "take", only_reader=False)
    if taken is None or taken.attrs.axis is None or static_shape(taken.args[1]) != ():
        return None
    shape, index = static_shape(taken.args[0]), scalar_of(taken.args[1])
    if shape is None or index is None:
        return None
    axis = int(taken.attrs.axis) % len(shape)
    return Entry(axis, int(index), shape[axis]) if 0 <= index < shape[axis] else None


def _join_heads(
    bodies: Bindings, var: relax.Var, attention: Attention
) -> tuple[relax.Var, Attention] | None:
    """The attention with the permutation and reshape after it that join the heads."""
    permuted = bodies.reader(var, "permute_dims")
    w = attention.workload
    if permuted is None or len(w.batch) != 2 or permuted[1].attrs.axes is None:
        return None
    if tuple(map(int, permuted[1].attrs.axes)) != HEADS_BEHIND_ROWS:
        return None
    joined = bodies.reader(permuted[0], "reshape")
    if joined is None or static_shape(joined[1]) != (w.batch[0], w.s, w.batch[1] * w.c):
        return None
    return joined[0], replace(attention, workload=replace(w, heads_last=True))
