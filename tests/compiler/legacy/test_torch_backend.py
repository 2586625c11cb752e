"""PyTorch's own back end for TVM, `torch.compile(model, backend="tvm")`, under the old names."""

from __future__ import annotations

import pytest

from compiler import legacy

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra 'torch'")


def test_a_model_is_compiled_by_pytorchs_backend():
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
            self.line = torch.nn.Linear(4, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.line(torch.relu(self.conv(x)).mean((2, 3)))

    model, x = Net().eval(), torch.rand(2, 3, 8, 8)
    with legacy.installed(), torch.no_grad():
        compiled = torch.compile(model, backend="tvm", fullgraph=True)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
