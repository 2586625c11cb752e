"""Has a convolution's weights, not its image, multiplied by the gate in front of it.

    before   y = conv2d(multiply(x, s), w)       x (1, C, H, W), s (1, C, 1, 1), w (O, C, KH, KW)

    after    y = conv2d(x, multiply(w, s))

A squeeze-and-excite block multiplies the channels of an image by factors that it has computed from
them. Close to the network's input such an image has a hundred times as many elements as the weights
of the pointwise convolution that reads it, and the product with it is a way to L2 or L3 and back.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...graph.constants import array_of, static_shape
from ...graph.rewrite import operator_name, variables_of

# Weights are multiplied and packed in each inference. One of them takes as long as so many elements
# of the image, which are in order.
ELEMENTS_PER_WEIGHT = 8


def fold_gates(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Fold in function `name` of a module, where that is less work."""
    function = mod[name]
    calls: dict[Any, Any] = {}
    readers: Counter[Any] = Counter()
    for binding in (each for block in function.body.blocks for each in block.bindings):
        calls[binding.var] = binding.value
        readers.update(variables_of(binding.value))
    readers.update(variables_of(function.body.body))
    folded: dict[Any, tuple[Any, Any]] = {}
    for var, call in calls.items():
        found = _gate(call, calls, readers)
        if found is not None:
            folded[var] = found
    if not folded:
        return mod
    folder = _Folder(folded)
    updated = mod.clone()
    updated.update_func(mod.get_global_var(name), folder.visit_expr(function))
    return relax.transform.DeadCodeElimination([name])(updated)


def _gate(
    call: Any, calls: dict[Any, Any], readers: Counter[Any]
) -> tuple[relax.Expr, relax.Expr] | None:
    """The image and its gate, if `call` is a convolution that is the only one to read both."""
    if operator_name(call) != "nn.conv2d" or int(call.attrs.groups) != 1:
        return None
    if (call.attrs.data_layout, call.attrs.kernel_layout) != ("NCHW", "OIHW"):
        return None
    data, weight = call.args
    product: Any = calls.get(data)
    known = array_of(weight)
    if known is None or operator_name(product) != "multiply" or readers[data] != 1:
        return None
    for image, gate in (product.args, tuple(product.args)[::-1]):
        shape = static_shape(image)
        if shape is None or shape != static_shape(data) or array_of(gate) is not None:
            continue
        is_less_work = known.size * ELEMENTS_PER_WEIGHT < math.prod(shape)
        if static_shape(gate) == (1, shape[1], 1, 1) and shape[0] == 1 and is_less_work:
            return image, gate
    return None


@mutator
class _Folder(PyExprMutator):
    def __init__(self, folded: dict[Any, tuple[Any, Any]]) -> None:
        super().__init__()
        self._folded = folded

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self._folded:
            image, gate = self._folded[binding.var]
            call = binding.value
            weight = self.builder_.emit(relax.op.multiply(call.args[1], self.visit_expr(gate)))
            conv = relax.Call(call.op, [self.visit_expr(image), weight], call.attrs)
            binding = relax.VarBinding(binding.var, self.builder_.normalize(conv))
        super().visit_var_binding_(binding)
