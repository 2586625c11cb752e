"""Device code that travels inside a CUDA module's source."""

import pytest
import tvm

from compiler.errors import LoadError
from compiler.runtime import cuda_code

SOURCE = 'extern "C" __global__ void kernel() {}\n'


@pytest.fixture
def callback(monkeypatch):
    """TVM's callback for compiling CUDA source, replaced by Baton's over a known one."""
    name = "tvm_callback_cuda_compile"
    before = tvm.get_global_func(name)
    tvm.register_global_func(name, lambda source: b"compiled", override=True)
    cuda_code.register()
    yield tvm.get_global_func(name)
    tvm.register_global_func(name, before, override=True)


def test_what_is_attached_is_extracted():
    code = bytes(range(256)) * 3
    assert cuda_code.extract(cuda_code.attach(SOURCE, code)) == code


def test_the_source_stays_valid_c_with_one_comment_behind_it():
    attached = cuda_code.attach(SOURCE, b"\x00\xff" * 99)
    assert attached.startswith(SOURCE)
    (comment,) = attached[len(SOURCE) :].strip().splitlines()
    assert comment.startswith("//")
    assert not comment.endswith("\\")


def test_source_without_device_code_has_none():
    assert cuda_code.extract(SOURCE) is None


def test_damaged_device_code_is_a_load_error():
    with pytest.raises(LoadError, match="damaged"):
        cuda_code.extract(cuda_code.attach(SOURCE, b"abcdef")[:-3] + "*\n")


def test_tvm_gets_the_attached_code_instead_of_compiling(callback):
    assert bytes(callback(cuda_code.attach(SOURCE, b"fatbin"))) == b"fatbin"


def test_tvm_still_compiles_source_without_device_code(callback):
    assert bytes(callback(SOURCE)) == b"compiled"
