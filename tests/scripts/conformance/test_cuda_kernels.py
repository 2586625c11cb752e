"""What is proven of CUDA kernels without a GPU, from the scripts' end."""

import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest

from compiler.models import fill_weights
from scripts.conformance import cuda_kernels, cuda_models
from tests.ptx import ptxas
from tests.schedules.cuda.families import FAMILIES, Family

needs_nvcc = pytest.mark.skipif(
    ptxas.NVCC is None or ptxas.PTXAS is None, reason="needs nvcc and ptxas"
)


def asked(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["cuda_kernels.py", *arguments])
    return cuda_kernels.main()


@needs_nvcc
def test_a_family_is_proven_and_its_mutants_are_noticed(monkeypatch, capsys):
    assert asked(monkeypatch, "transpose", "--arch", "sm_90") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "1 kernels; 0 problems; 2 mutants; 2 noticed; 0 redundant; 0 failures"


@needs_nvcc
def test_a_wrong_kernel_is_a_failure(monkeypatch, capsys):
    family = next(family for family in FAMILIES if family.name == "transpose")

    class Shifted(Family):
        def check(self, found, inputs):
            super().check(np.roll(found, 1), inputs)

    monkeypatch.setattr(cuda_kernels, "FAMILIES", [Shifted(family.name, family.tensors)])
    assert asked(monkeypatch, "--arch", "sm_90") == 1
    assert "wrong: Not equal" in capsys.readouterr().out


def test_unknown_families_are_refused(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        asked(monkeypatch, "made up")
    assert "no such family: made up" in capsys.readouterr().err


def test_networks_of_tokens_shrink_with_their_constants():
    model = onnx.load(fill_weights.skeleton("minilm"), load_external_data=False)
    cuda_models.shrink("minilm", model)
    sizes = [
        dim.dim_value for value in model.graph.input for dim in value.type.tensor_type.shape.dim
    ]
    assert sizes[:4] == [1, cuda_models.TOKENS] * 2
    assert not any(128 in initializer.dims for initializer in model.graph.initializer)


def test_occupancy_counts_registers_and_shared_memory():
    used = ptxas.Resources(registers=64, spilled=0, shared=16 * 1024)
    assert used.occupancy("sm_90", 256, 0) == (4, 0.5)
    assert replace(used, shared=0).occupancy("sm_90", 256, 100 * 1024) == (2, 0.25)
    assert replace(used, registers=255).occupancy("sm_80", 1024, 0) == (0, 0.0)
