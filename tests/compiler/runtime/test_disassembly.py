"""Assembly text of a built library."""

from __future__ import annotations

import shutil

import pytest

from compiler import relay
from compiler.errors import BuildError
from compiler.runtime import disassembly

needs_objdump = pytest.mark.skipif(
    not any(map(shutil.which, ("objdump", "llvm-objdump"))), reason="needs objdump"
)


@pytest.fixture(scope="module")
def library():
    x, w = relay.var("x", shape=(4, 64)), relay.var("w", shape=(64, 64))
    function = relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w)))
    return relay.build(function, "llvm -mcpu=core-avx2")


@needs_objdump
def test_the_text_shows_each_kernel_and_its_instructions(library):
    text = library.assembly()
    symbols = [kernel.name for kernel in library.report.kernels]
    assert symbols and all(name in text for name in symbols)
    assert "vfmadd" in text and "%ymm" in text and "%zmm" not in text


def test_without_a_program_that_disassembles_the_error_says_what_to_install(library, monkeypatch):
    monkeypatch.setattr(disassembly.shutil, "which", lambda name: None)
    with pytest.raises(BuildError, match="install binutils"):
        library.assembly()
