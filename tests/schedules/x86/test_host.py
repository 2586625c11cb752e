"""The name of this machine's CPU: LLVM's, or the one whose instructions Linux lists."""

from __future__ import annotations

import pytest
from tvm.target import Target, codegen

from schedules.x86.machine import host


def flags(cpu: str, *others: str) -> frozenset[str]:
    return host._instructions(cpu) | {host._spelled(name) for name in others}


@pytest.mark.parametrize(
    ("model", "listed", "named"),
    [
        ("rocketlake", flags("rocketlake"), "rocketlake"),
        ("rocketlake", flags("sapphirerapids"), "sapphirerapids"),
        ("generic", flags("znver4"), "znver4"),
        ("skylake-avx512", flags("skylake", "unheard_of"), "skylake-avx512"),
        ("broadwell", flags("broadwell", "unheard_of"), "broadwell"),
    ],
)
def test_the_model_counts_unless_it_lacks_instructions_that_are_there(model, listed, named):
    assert host.closest(model, listed) == named


def test_processors_may_differ():
    text = "processor : 0\nflags : avx2 avx512_vnni\n\nprocessor : 1\nflags : avx2\n"
    assert host._listed(text) == {"avx2"}
    assert host._listed("processor : 0\nFeatures : asimd\n") == frozenset()


def test_llvm_knows_the_name():
    known = {str(name) for name in codegen.llvm_get_cpu_archlist(Target("llvm"))}
    assert host.host_name() in known
