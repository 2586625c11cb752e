"""Long reductions to few outputs, divided among the multiprocessors."""

import re

import numpy as np
import pytest
import tvm
from tvm import te, topi

from schedules.cuda import limits
from tests.schedules.cuda.checking import TARGET, schedule, tensor
from tests.schedules.cuda.emulation import COMPILER, Emulated

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="the emulation needs a C++ compiler")


def launched_blocks(func):
    module = tvm.IRModule({"k": func.with_attr("global_symbol", "k")})
    lowered = tvm.tirx.get_tir_pipeline("default")[0](tvm.tirx.transform.BindTarget(TARGET)(module))
    return [int(n) for n in re.findall(r'launch_thread\("blockIdx.x", (\d+)\)', lowered.script())]


def test_a_sum_of_16_million_elements_fills_the_device():
    x = tensor(1 << 24)
    name, scheduled = schedule(te.create_prim_func([x, topi.sum(x)]))
    assert name == "cuda.split_reduction"
    assert max(launched_blocks(scheduled)) >= limits.of(TARGET).sms


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "compute", "expected"),
    [
        ((3 << 16,), lambda x: topi.sum(x * x), lambda x: (x * x).sum()),
        ((3, 70000), lambda x: topi.max(x, 1) + 1.0, lambda x: x.max(1) + 1),
        ((2, 300, 256), lambda x: topi.sum(x, (1, 2)), lambda x: x.sum((1, 2))),
    ],
)
def test_two_stages_give_the_right_numbers(shape, compute, expected, tmp_path):
    x = tensor(*shape)
    name, scheduled = schedule(te.create_prim_func([x, compute(x)]))
    assert name == "cuda.split_reduction"
    values = np.random.default_rng(0).uniform(0, 1, shape).astype("float32")
    (found,) = Emulated(scheduled, TARGET, tmp_path)([values])
    np.testing.assert_allclose(found, expected(values.astype("float64")), rtol=1e-5)


def test_many_outputs_and_short_reductions_keep_to_one_kernel():
    for shape in ((128, 1 << 16), (1, 4096)):
        x = tensor(*shape)
        name, _ = schedule(te.create_prim_func([x, topi.sum(x, 1)]))
        assert name != "cuda.split_reduction"
