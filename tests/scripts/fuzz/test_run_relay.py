"""The fuzzer of Relay programs: what it draws, what it calls wrong, short runs without findings."""

from __future__ import annotations

import random

import numpy as np
import pytest

from compiler.relay.op import lookup
from scripts.fuzz import relay_makers
from scripts.fuzz import run_relay as programs


def test_a_program_is_the_same_for_the_same_seed_and_number():
    first, second, other = (programs.draw(seed, 9, 12) for seed in (3, 3, 4))
    assert [node.op for node in first] == [node.op for node in second]
    for one, same in zip(first, second):
        np.testing.assert_array_equal(one.value, same.value)
    assert [node.op for node in first] != [node.op for node in other]


@pytest.mark.parametrize("op", relay_makers.MAKERS)
def test_every_maker_draws_its_operator(op):
    assert lookup.is_available(op) and op in relay_makers.NUMPY
    for number in range(200):
        draft = programs.Draft(random.Random(number))
        draft.input((2, 3, 4, 4), "float32")
        draft.input((2, 1, 3), "float32")
        try:
            relay_makers.MAKERS[op](draft, op)
        except relay_makers.Unfit:
            continue
        assert draft.nodes[-1].op == op
        return
    pytest.fail(f"{op} was not drawn")


def test_a_result_is_wrong_where_rounding_does_not_explain_it():
    x = programs.Node("input", (), {}, np.array([1.0, 2.0, 3.0], "float32"))
    nodes = [x, programs.Node("exp", (0,), {}, np.exp(x.value))]
    wanted = programs.expected(nodes, [1])
    right = np.exp(x.value)
    assert not programs.compare([right], wanted)
    assert not programs.compare([np.nextafter(right, 0)], wanted)
    assert "output 0 has" in programs.compare([right * np.float32(1.001)], wanted)
    assert "shape" in programs.compare([right[:2]], wanted)


def test_a_wrong_program_is_a_finding_and_is_made_small(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(relay_makers.NUMPY, "tanh", lambda x: np.tanh(x) + x.dtype.type(0.5))
    monkeypatch.setattr(programs, "MAKERS", {"tanh": relay_makers.MAKERS["tanh"]})
    counts = programs.run(tmp_path, seed=1, first=1, count=1, largest=2)
    assert counts["wrong"] >= 1
    (text,) = tmp_path.glob("program-1-1.txt")
    assert text.read_text().count("tanh") == 1 and "wrong: builder at 0" in text.read_text()


@pytest.mark.parametrize("models", [False, True])
def test_a_short_run_has_no_findings(models, tmp_path, capsys):
    """As `make fuzz`, in this many programs and models."""
    count, largest = (3, 4) if models else (6, 10)
    found = programs.run(tmp_path, seed=2, first=4, count=count, largest=largest, models=models)
    assert not any(found[kind] for kind in programs.FAILED), capsys.readouterr().out
    assert found["agree"]
