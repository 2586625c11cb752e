"""Shipped logs: which targets they serve, and what goes before them."""

from __future__ import annotations

import importlib.resources

import pytest

from compiler import autotvm
from compiler import target as targets
from compiler.autotvm import task, tophub
from compiler.autotvm.log_target import log_target
from schedules import strategy
from schedules.config import ConfigEntity, option


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("llvm -mcpu=skylake-avx512", "x86-64-v4.log"),
        ("llvm -mcpu=znver4", "x86-64-v4.log"),
        ("llvm -mcpu=x86-64-v3", "x86-64-v3.log"),
        ("llvm -mcpu=x86-64", None),
        ("cuda -arch=sm_80", None),
    ],
)
def test_a_target_gets_the_log_of_its_level_of_x86_alone(target, name):
    assert tophub.file_for(log_target(targets.parse(target))) == name


def test_shipped_logs_are_switched_off_by_the_old_variable(monkeypatch):
    monkeypatch.setenv("TOPHUB_LOCATION", "NONE")
    assert len(tophub.shipped_records(log_target("llvm -mcpu=znver4"))) == 0


def _logs():
    files = importlib.resources.files("tuning_logs").iterdir()
    return sorted(file.name for file in files if file.name.endswith(".log"))


@pytest.mark.parametrize("name", _logs())
def test_every_shipped_record_is_in_its_templates_space(name):
    with importlib.resources.as_file(importlib.resources.files("tuning_logs") / name) as path:
        records = list(autotvm.load_from_file(path, strict=True))
    assert records
    for inp, result in records:
        made = task.create(inp.task.name, inp.task.args, str(inp.target))
        assert made.config_space.index_of(inp.config) is not None, inp.config.source
        assert result.error_no == 0


def test_the_innermost_log_goes_before_a_faster_record_of_an_outer_one():
    def implementation(name):
        return strategy.Implementation(
            name, 10, lambda w, t: True, lambda w, t: ConfigEntity(), None, lambda w: ()
        )

    for name in ("slow", "fast"):
        strategy.register("test.levels", "cpu", implementation(name))
    known = {
        "slow": ConfigEntity({"k": option(1)}, "topi:mine:1", False, 1.0, level=0),
        "fast": ConfigEntity({"k": option(2)}, "topi:shipped:1", False, 0.1, level=1),
    }
    target = targets.parse("llvm")
    chosen = strategy.select("test.levels", None, target, lambda t, w: known[w[0]])
    assert chosen is not None and chosen[0].name == "slow"
