"""Output of `cuda.py` on the mocked GPU; the times are those of the interpreter."""

import pytest

from tests import cuda_mock
from tests.ptx import ptxas

RUN = """
import sys
from tests.cuda_mock.device import Device
from scripts.bench import cuda

device = Device(execute=sys.argv.pop(1) == "compute")
status = cuda.main()
print("calls", len(device.calls), "launches", len(device.launches), "status", status)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    if cuda_mock.COMPILER is None or ptxas.NVCC is None:
        pytest.skip("needs a C compiler and nvcc")
    made = cuda_mock.make_home(tmp_path_factory.mktemp("cuda") / "home", ptxas.NVCC)
    cuda_mock.add_libraries(made)
    return made


def ran(home, how, *options):
    return cuda_mock.run(RUN, home, how, *options, "--rounds", "1", "--seconds", "0")


def test_products_are_timed_in_baton_and_in_its_libraries(home):
    head, *rows, last = ran(home, "compute", "--products", "4,8,12")
    engines = {row.split()[6]: row.split()[7:] for row in rows}
    assert head.split() == ["case", "dtype", "engine", "us", "baton", "is"]
    assert [float(engines["baton"][1]), len(engines["libraries"])] == [1.0, 2]
    assert engines["onnxruntime"] == ["gets", "float32", "models"]
    assert last.endswith("status 0")
    calls, launches = map(int, last.split()[1:4:2])
    assert calls > 0 and launches > calls


def test_an_engine_with_other_results_is_named(home):
    """Without kernels that compute, Baton's result is what memory held: NaN."""
    *rows, last = ran(home, "pass", "--products", "4,8,12")
    assert any(row.endswith("DIFFERS") for row in rows)
    assert last.endswith("status 1")


def test_without_a_gpu_the_program_says_so(monkeypatch, capsys):

    from scripts.bench import cuda

    monkeypatch.setattr("sys.argv", ["cuda.py"])
    monkeypatch.setattr(cuda.cuda_runtime, "prepare", lambda: "CUDA is not here")
    with pytest.raises(SystemExit):
        cuda.main()
    assert "CUDA is not here" in capsys.readouterr().err
