"""The errors of Strassen's and Winograd's algorithms stay within what the documentation states."""

import dataclasses
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.bench import error_bounds
from scripts.bench import rounding_errors as script
from tests.sweep import examples

CHANNELS = 32
# Of docs/x86_schedules_measured.md, in units of 2^-24 * max|x| * sum|w|.
STATED = 24
TRIED = ("strassen", "winograd F(4x4,3x3)", "winograd F(1x3,1x7)", "winograd F(4x4,2x2) of phases")
CASES = {case.name: case for case in script.cases(CHANNELS)}


@pytest.fixture(scope="module")
def kernels():
    made = {}

    def kernel(name):
        if name not in made:
            case = CASES[name]
            rng, w = np.random.default_rng(0), case.workload
            shape = (w.out_channels, w.in_channels, *w.kernel)
            made[name] = script.Kernel(case, rng.uniform(-1, 1, shape).astype("float32"))
        return made[name]

    return kernel


@examples(4)
@given(
    st.sampled_from(TRIED),
    st.integers(0, 2**32 - 1),
    st.floats(0, 4),
    st.sampled_from([1e-20, 1.0, 1e20]),
)
def test_errors_stay_below_the_bound_and_below_what_is_stated(kernels, name, seed, decades, size):
    """Magnitudes within a sample span up to 1e4: of elements, pixels or channels."""
    case, kernel = CASES[name], kernels(name)
    sums = np.abs(kernel.weight).sum(axis=(1, 2, 3))
    for x in script.images(np.random.default_rng(seed), CHANNELS, 10**decades):
        x = x * np.float32(size)
        error = np.abs(kernel(x) - script.exact(case.workload, x, kernel.weight)).max(axis=(1, 2))
        largest = np.abs(x).max()
        assert error.max() <= case.bound.factor * largest * np.abs(kernel.weight).max()
        assert (error <= STATED * error_bounds.UNIT_ROUNDOFF * largest * sums).all()


@pytest.mark.parametrize("name", TRIED)
def test_nothing_overflows_up_to_the_input_that_the_bound_names(kernels, name):
    case, kernel = CASES[name], kernels(name)
    limit = 0.999 * case.bound.largest_input(float(np.abs(kernel.weight).max()))
    rng = np.random.default_rng(1)
    for x in (rng.uniform(-1, 1, (CHANNELS, 12, 12)), rng.choice([-1, 1], (CHANNELS, 12, 12))):
        x = (x * limit).astype("float32")
        expected = script.exact(case.workload, x, kernel.weight)
        assert np.abs(kernel(x) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("name", TRIED[:2])
def test_beyond_the_spread_what_the_definition_computes_overflows(kernels, name):
    """Neighbors of unlike signs for Strassen's pairs; one pixel suffices for Winograd's tile."""
    case, kernel = CASES[name], kernels(name)
    x = np.zeros((CHANNELS, 12, 12), "float32")
    x[0, 4, 4] = 0.9 * error_bounds.LARGEST
    x[0, 4, 5] = -x[0, 4, 4] if name == "strassen" else 0
    expected = script.exact(case.workload, x, kernel.weight)
    assert np.isfinite(expected.astype("float32")).all()
    assert not np.isfinite(kernel(x)).all()


def test_the_bound_of_the_definition_has_no_growth():
    bound = error_bounds.direct(64)
    assert bound.factor == pytest.approx(64 * 64 * 2.0**-24, rel=1e-5)
    assert bound.largest_input(1.0) == error_bounds.LARGEST / 64


def test_the_script_measures_every_algorithm_and_notes_what_exceeds_its_bound(monkeypatch, capsys):
    names = ("strassen", "direct, 3x3")
    monkeypatch.setattr(script, "cases", lambda channels: [CASES[name] for name in names])
    monkeypatch.setattr(sys, "argv", ["rounding_errors", "--trials", "1"])
    script.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {name}" for name in names]
    assert "exceeded" not in "".join(lines)
    tight = dataclasses.replace(CASES["strassen"], bound=error_bounds.Bound(32, 1, 1e-3, 2.0))
    monkeypatch.setattr(script, "cases", lambda channels: [tight])
    script.main()
    assert "exceeded" in capsys.readouterr().out
