"""Which rule gets a function, and what becomes of those that fail."""

from __future__ import annotations

import logging

import pytest
import tvm
from tvm import s_tir, te, tirx, topi
from tvm.target import Target

from schedules import rules
from schedules.config import ConfigEntity
from schedules.strategy import anchor_attrs

CPU = Target({"kind": "llvm", "mcpu": "x86-64-v3"})


class Recording(s_tir.dlight.ScheduleRule):
    def __init__(self, outcome: str):
        self.outcome = outcome
        self.functions: list[tirx.PrimFunc] = []

    def apply(self, func, target, tunable):
        self.functions.append(func)
        sch = s_tir.Schedule(func)
        if self.outcome == "fails":
            sch.get_sblock("no such block")
        return sch if self.outcome == "schedules" else None


@pytest.fixture
def rule(request):
    made = rules.register_anchor_rule("test.rule", Recording(request.param))
    yield made
    del rules.ANCHOR_RULES["test.rule"]


def anchored(name: str = "test.rule") -> tirx.PrimFunc:
    attrs = anchor_attrs(name, ConfigEntity(source="topi:some.log:3"))
    x = te.placeholder((64, 64), "float32", name="x")
    double = te.compute((64, 64), lambda i, j: x[i, j] * 2, name="double", attrs=attrs)
    plus = te.compute((64, 64), lambda i, j: double[i, j] + 1, name="plus")
    return te.create_prim_func([x, plus])


@pytest.mark.parametrize("rule", ["schedules"], indirect=True)
def test_the_anchor_s_rule_gets_the_whole_function(rule):
    scheduled = rules.schedule(anchored(), CPU)
    assert (scheduled.rule, scheduled.source) == ("test.rule", "topi:some.log:3")
    assert rules.block_names(rule.functions[0]) == ["double", "plus"]
    assert scheduled.func.attrs["tirx.is_scheduled"]


@pytest.mark.parametrize("rule", ["schedules"], indirect=True)
def test_a_scheduled_function_carries_no_anchor_any_more(rule):
    text = rules.schedule(anchored(), CPU).func.script()
    assert not any(name in text for name in rules.ANCHOR_ANNOTATIONS)


@pytest.mark.parametrize("rule", ["fails"], indirect=True)
def test_a_rule_that_fails_is_logged_and_the_next_one_tried(rule, caplog):
    with caplog.at_level(logging.WARNING, "baton.schedules"):
        scheduled = rules.schedule(anchored(), CPU)
    assert (scheduled.rule, scheduled.source) == ("Injective", "topi:fallback")
    assert "rule test.rule can't schedule" in caplog.text
    assert "no such block" in caplog.text


@pytest.mark.parametrize("rule", ["declines"], indirect=True)
def test_a_rule_that_declines_leaves_the_function_to_the_next_one(rule):
    assert rules.schedule(anchored(), CPU).rule == "Injective"


def test_an_anchor_of_unknown_name_is_logged(caplog):
    with caplog.at_level(logging.WARNING, "baton.schedules"):
        assert rules.schedule(anchored("nobody.x86"), CPU).rule == "Injective"
    assert "nobody.x86" in caplog.text


def test_the_annotation_of_topi_pooling_is_no_anchor(caplog):
    x = te.placeholder((1, 8, 16, 16), "float32", name="x")
    pool = topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
    with caplog.at_level(logging.WARNING, "baton.schedules"):
        assert rules.schedule(te.create_prim_func([x, pool]), CPU).rule == "Pooling"
    assert not caplog.records


@pytest.mark.parametrize("rule", ["schedules"], indirect=True)
def test_a_name_is_registered_once(rule):
    with pytest.raises(ValueError, match="already registered"):
        rules.register_anchor_rule("test.rule", Recording("declines"))


def test_a_function_that_nothing_takes_is_none_and_logged(caplog):
    with caplog.at_level(logging.WARNING, "baton.schedules"):
        assert rules.schedule(anchored("nobody.x86"), Target({"kind": "hexagon"})) is None
    assert "no schedule rule takes the function with blocks ['double', 'plus']" in caplog.text


def test_a_scheduled_function_of_any_name_compiles():
    func = anchored("nobody.x86").with_attr("global_symbol", "kernel")
    scheduled = rules.schedule(func, CPU).func.with_attr("global_symbol", "kernel")
    assert tvm.compile(scheduled, target=CPU)["kernel"] is not None
