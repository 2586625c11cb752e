"""Operators that a script makes and says how to compute, in a process of their own."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import numpy as np
import tvm
from tvm import relay, te, topi


def applied(name, operands, **attrs):
    made = tvm.ir.make_node("DictAttrs", **attrs) if attrs else None
    return relay.Call(tvm.ir.Op.get(name), operands, made)


relay.op.op.register("my.scale_add", "a product and a sum")
relay.op.register_pattern("my.scale_add", relay.op.OpPattern.BROADCAST)
relay.op.register_injective_schedule("my.scale_add")


@relay.op.register_compute("my.scale_add")
def scale_add(attrs, inputs, out_type):
    x, y = inputs
    return [te.compute(x.shape, lambda *i: x(*i) * attrs.k + y(*i))]


relay.op.op.register("my.twice")


@relay.op.register_strategy("my.twice")
def twice(attrs, inputs, out_type, target):
    strategy = relay.op.OpStrategy()
    for level, factor in ((5, 3.0), (15, 2.0), (10, 5.0)):
        compute = lambda attrs, inputs, out_type, by=factor: topi.multiply(inputs[0], by)
        strategy.add_implementation(compute, None, name=f"times {factor}", plevel=level)
    return strategy


x, y = (relay.var(name, shape=(2, 3)) for name in "xy")
body = relay.nn.relu(applied("my.twice", [applied("my.scale_add", [x, y], k=3.0)]))
mod = tvm.IRModule.from_expr(relay.Function([x, y], body))
a, b = (np.random.randn(2, 3).astype("float32") for _ in range(2))
lib = relay.build(mod, "llvm")
module = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
module.run(x=a, y=b)
np.testing.assert_allclose(
    module.get_output(0).numpy(), np.maximum(2 * (3 * a + b), 0), rtol=1e-5, atol=1e-6
)
try:
    relay.op.register_compute("nn.relu", scale_add)
except tvm.TVMError as error:
    print(error)
"""


def test_an_operator_computes_what_its_compute_or_its_best_implementation_says(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "compiler", "run", str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "nn.relu is an operator of Relay's" in done.stdout
