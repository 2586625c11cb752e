"""Quantized PyTorch modules, of all tools, run on integers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import tvm

from compiler import relay

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra 'torch'")
from torch import nn  # noqa: E402

from .test_from_pytorch import infos_of, randn, traced  # noqa: E402


class Layers(nn.Module):
    """A batch norm, a depthwise layer, a residual sum, a mean and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.depths = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.points, self.dense = nn.Conv2d(16, 16, 1), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.first(x), 2)
        x = x + torch.relu(self.points(self.depths(x)))
        return self.dense(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


class Stubs(nn.Sequential):
    """An eager network between stubs."""

    def __init__(self) -> None:
        stubs = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        super().__init__(stubs[0], nn.Conv2d(3, 8, 3), nn.ReLU(), stubs[1])


@pytest.mark.parametrize(("kind", "products"), [(Stubs, 1), (Layers, 4)], ids=["eager", "FX"])
def test_quantized_modules_compute_what_pytorch_does(kind: type[nn.Module], products: int) -> None:
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("this PyTorch has no fbgemm to quantize with")
    quantization = torch.ao.quantization
    torch.manual_seed(1)
    module, examples = kind().eval(), (randn(1, 3, 6, 6),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind is Stubs:
            module.qconfig = quantization.get_default_qconfig("fbgemm")
            module = quantization.prepare(module)
        else:
            fx = pytest.importorskip("torch.ao.quantization.quantize_fx")
            mapping = quantization.get_default_qconfig_mapping("fbgemm")
            module = fx.prepare_fx(module, mapping, examples)
        module(*examples)
        convert = quantization.convert if kind is Stubs else fx.convert_fx
        module = convert(module)
    mod, params = relay.frontend.from_pytorch(traced(module, examples), infos_of(examples))
    result = on_integers(mod, params, examples[0], products)
    expected = module(*examples).numpy()
    assert len(np.unique(expected)) > 5
    np.testing.assert_allclose(result, expected, atol=2 * float(np.abs(expected).max()) / 127)


@pytest.mark.parametrize("by_channel", [False, True])
def test_layers_that_quantize_by_their_own_range_run_on_integers(by_channel: bool) -> None:
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("this PyTorch has no fbgemm to quantize with")
    quantization = torch.ao.quantization
    module = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 10, bias=False)).eval()
    dynamic = "per_channel_dynamic_qconfig" if by_channel else "default_dynamic_qconfig"
    examples = (randn(5, 24),)
    wide = module(*examples).detach().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = quantization.quantize_dynamic(module, {nn.Linear: getattr(quantization, dynamic)})
    mod, params = relay.frontend.from_pytorch(traced(module, examples), infos_of(examples))
    result = on_integers(mod, params, examples[0], 2)
    expected = module(*examples).detach().numpy()
    assert 0 < np.abs(result - wide).max() < 0.02 * np.abs(wide).max()
    np.testing.assert_allclose(result, expected, atol=0.03 * np.abs(expected).max())


def on_integers(mod: tvm.IRModule, params: Any, x: torch.Tensor, products: int = 1) -> np.ndarray:
    """What a built model makes of x by so many products, all of bytes."""
    library = relay.build(mod, "llvm", params=params)
    used = [each.operands for each in library.report.kernels if each.operands]
    assert used == ["uint8 x int8"] * products and not library.report.notes
    executor = library["default"](tvm.cpu())
    executor.set_input(0, x.numpy())
    executor.run()
    return executor.get_output(0).numpy()


class Decomposed(nn.Module):
    """A convolution as PyTorch's PT2E quantization leaves it."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        weight = torch.randint(-127, 128, (8, 3, 3, 3), dtype=torch.int8, generator=generator)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", torch.rand(8, generator=generator) * 0.01 + 0.001)
        self.register_buffer("zero", torch.zeros(8, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ops, bytes_ = torch.ops.quantized_decomposed, (0, 255, torch.uint8)
        x = ops.quantize_per_tensor(x, 0.03, 128, *bytes_)
        x = ops.dequantize_per_tensor(x, 0.03, 128, *bytes_)
        numbers = (self.scale, self.zero, 0, -128, 127, torch.int8)
        weight = ops.dequantize_per_channel(self.weight, *numbers)
        y = ops.quantize_per_tensor(torch.relu(nn.functional.conv2d(x, weight)), 0.05, 3, *bytes_)
        return ops.dequantize_per_tensor(y, 0.05, 3, *bytes_)


def test_a_program_quantized_after_its_export_runs_on_integers() -> None:
    pytest.importorskip("torch.ao.quantization.fx._decomposed")
    module, examples = Decomposed().eval(), (randn(1, 3, 6, 6),)
    program = torch.export.export(module, examples)
    result = on_integers(*relay.frontend.from_pytorch(program, infos_of(examples)), examples[0])
    expected = module(*examples).numpy()
    assert len(np.unique(expected)) > 20
    np.testing.assert_allclose(result, expected, atol=0.0501)
    assert np.mean(result != expected) < 0.02
