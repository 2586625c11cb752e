"""A few random networks on the mocked GPU, and what the fuzzer says of a wrong result."""

import numpy as np
import pytest

from scripts.fuzz import run_cuda
from tests import cuda_mock
from tests.ptx import ptxas


@pytest.mark.skipif(
    cuda_mock.COMPILER is None or ptxas.NVCC is None, reason="needs a C compiler and nvcc"
)
def test_networks_on_the_mocked_gpu_give_the_results_of_a_cpu(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["run_cuda", "--seed", "2", "--first", "20", "--count", "5"])
    assert run_cuda.main() == 0, capsys.readouterr().out
    assert "5 networks, " in capsys.readouterr().out


def test_differences_are_named():
    found = np.array([1.0, 2.0], "float32")
    assert run_cuda.difference(found, found) == ""
    assert run_cuda.difference(found, found * 1.001) == "error 1.0e-03"
    assert run_cuda.difference(found, np.array([1, np.inf], "float32")).startswith("infinities")
    assert run_cuda.difference(found, found[:1]) == "float32[2] instead of float32[1]"
    assert run_cuda.difference(np.array([1, 2]), np.array([1, 3])) == "1 of 2 differ"
