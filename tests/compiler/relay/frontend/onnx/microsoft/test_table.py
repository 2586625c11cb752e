"""Which of onnxruntime's own operators are read, and which are refused."""

from __future__ import annotations

import subprocess
import sys

import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state

from compiler.relay.frontend.onnx.ops.microsoft import CONVERTERS, REFUSED
from tests.compiler.relay.frontend.onnx.microsoft.nodes import own


# Others may have operators that nobody looked at yet; these are refused without a reason.
@pytest.mark.skipif(
    not onnxruntime.__version__.startswith("1.32."), reason="the table is of onnxruntime 1.32"
)
def test_every_operator_is_read_or_refused_with_a_reason():
    known = {
        (schema.domain, schema.name)
        for schema in onnxruntime_pybind11_state.get_all_operator_schema()
        if schema.domain in ("com.microsoft", "com.microsoft.nchwc")
    }
    assert known <= CONVERTERS.keys() | REFUSED.keys()
    assert not CONVERTERS.keys() & REFUSED.keys()


def test_the_table_of_operators_is_up_to_date():
    command = [sys.executable, "-m", "scripts.reports.onnxruntime_operators", "--check"]
    check = subprocess.run(command, capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize("operator", ["BeamSearch", "MoE", "DynamicQuantizeLSTM"])
def test_a_refusal_says_why(operator, refusal, floats):
    message = refusal(own(operator, "x", "y"), {"x": floats(2, 2)})
    assert operator in message and REFUSED["com.microsoft", operator] in message
