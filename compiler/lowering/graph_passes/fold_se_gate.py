"""Fold a squeeze-and-excitation gate into the weights of the next convolution.

    before   y = conv2d(multiply(x, s), w)       x (1, C, H, W), s (1, C, 1, 1), w (O, C, KH, KW)

    after    y = conv2d(x, multiply(w, s))

A squeeze-and-excite block multiplies the channels of an image by factors computed from that image.
Close to the network's input the image has a hundred times as many elements as the weights of the
pointwise convolution that reads it, and multiplying it is a round trip to L2 or L3.
"""

from __future__ import annotations

import math

import tvm
from tvm import relax

from ...ir.constants import array_of, static_shape
from ...ir.op_dialect import RELAX
from ...ir.rewrite import CallRule, rewrite_calls

# Weights are multiplied and packed in each inference: time per weight, in units of an image
# element. Image elements are contiguous in memory.
ELEMENTS_PER_WEIGHT = 8


def fold_gates(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Fold gates in function `name` of a module where that reduces the work."""
    return rewrite_calls(mod, _Gates, [name])


class _Gates(CallRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name != "nn.conv2d" or int(call.attrs.groups) != 1:
            return None
        if (call.attrs.data_layout, call.attrs.kernel_layout) != ("NCHW", "OIHW"):
            return None
        data, weight = call.args
        product, known = self.scope.match_call(data, "multiply"), array_of(weight)
        if known is None or product is None or not self.scope.used_once(data):
            return None
        for image, gate in (product.args, product.args[::-1]):
            shape = static_shape(image)
            if shape is None or shape != static_shape(data) or array_of(gate) is not None:
                continue
            is_less_work = known.size * ELEMENTS_PER_WEIGHT < math.prod(shape)
            if static_shape(gate) == (1, shape[1], 1, 1) and shape[0] == 1 and is_less_work:
                return RELAX.again(call, [image, relax.op.multiply(weight, gate)])
        return None
