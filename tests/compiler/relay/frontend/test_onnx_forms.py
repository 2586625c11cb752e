"""Forms of operators that are rare: they run as onnxruntime runs them, or are refused clearly."""

from __future__ import annotations

import numpy as np
import pytest

HUGE = np.array([2.27e38, 1.7e38, -2.27e38, 1.5, 0.0], "float32")


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu"])
def test_gelu_of_large_values_does_not_overflow(operator, level, runs_as_onnxruntime):
    text = f"""<ir_version: 10, opset_import: ["": 17, "com.microsoft": 1]>
    test (float[5] x) => (float[5] y) <float[5] b> {{ y = com.microsoft.{operator}(x, b) }}"""
    bias = np.array([0, 1e38, 0, 0, 1], "float32")
    runs_as_onnxruntime(text, {"b": bias}, {"x": HUGE}, level)
