from __future__ import annotations

import re
from pathlib import Path

import pytest

import compiler
from compiler.cli import pass_names
from compiler.errors import InputError

ROOT = Path(compiler.__file__).parent


def test_every_pass_of_the_build_is_known():
    declared = set()
    for folder in ("lowering", "ir", "tvm_workarounds"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            declared |= set(re.findall(r"_pass\(opt_level=\d, name=\"(\w+)\"", text))
            if "_pass(opt_level" in text:
                declared |= set(re.findall(r'^NAME = "([A-Z]\w+)"', text, re.MULTILINE))
            declared |= set(re.findall(r'^[A-Z_]+_PASS = "(\w+)"', text, re.MULTILINE))
    assert len(declared) > 20
    assert declared <= pass_names.known()


def test_an_unknown_pass_is_refused_with_those_like_it():
    pass_names.require_known(["AlterOpLayout", "Winograd", "FoldConstant", "StaticPlanBlockMemory"])
    with pytest.raises(InputError, match=r"no pass 'Winograt' .* near to it: Winograd"):
        pass_names.require_known(["Winograt"])
