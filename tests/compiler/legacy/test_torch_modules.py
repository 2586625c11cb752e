"""`tvm.contrib.torch` under the old names."""

from __future__ import annotations

import io

import pytest

from compiler import legacy

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra 'torch'")


def test_a_kernel_of_tvmscript_is_a_module_of_pytorch():
    with legacy.installed():
        from tvm.contrib.torch import as_torch
        from tvm.script import tir as T

        @as_torch
        def scaled(n: int):
            @T.prim_func
            def main(a: T.handle, b: T.handle) -> None:
                A = T.match_buffer(a, [n], dtype="float32")
                B = T.match_buffer(b, [n], dtype="float32")
                for i in range(n):
                    with T.block("B"):
                        vi = T.axis.spatial(n, i)
                        B[vi] = A[vi] * T.float32(3)

            return main

        kernel = scaled(7)
        x, y = torch.rand(7), torch.zeros(7)
        kernel(x, y)
        torch.testing.assert_close(y, x * 3)
        assert "3" in kernel.script()


def test_a_model_is_optimized_and_saved():
    with legacy.installed():
        from tvm.contrib.torch import optimize_torch
        from tvm.meta_schedule import TuneConfig

        model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU()).eval()
        x = torch.rand(3, 6)
        compiled = optimize_torch(model, x)
        file = io.BytesIO()
        torch.save(compiled, file)
        file.seek(0)
        again = torch.load(file, weights_only=False)
        for each in (compiled, again):
            torch.testing.assert_close(each(x), model(x), rtol=1e-4, atol=1e-5)

        def foo(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return a + b, a * b

        added, multiplied = optimize_torch(foo, (x, x), TuneConfig())(x, x)
        torch.testing.assert_close(added, x + x)
        torch.testing.assert_close(multiplied, x * x)
