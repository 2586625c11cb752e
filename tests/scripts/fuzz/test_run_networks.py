"""The fuzzer of networks: what it draws, and a short run without findings."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from scripts.fuzz import pool, run_networks
from scripts.fuzz.networks.families import FAMILIES, draw
from scripts.fuzz.run_extents import expect


def test_a_network_is_the_same_for_the_same_seed_and_number():
    first, second, other = (draw(seed, 3).model() for seed in (7, 7, 8))
    assert first == second != other


def test_onnxruntime_runs_most_networks_and_every_family():
    seen, valid = set(), 0
    for number in range(150):
        net = draw(5, number)
        model = net.model()
        rng = np.random.default_rng(number)
        feeds = [net.feed(sizes, rng) for sizes in run_networks.sizes_of(net, rng)[:2]]
        if any(expect(model, feed).values is not None for feed in feeds):
            valid += 1
            seen.add(net.stages[0])
    assert valid >= 135
    assert seen == {family.__name__ for family in FAMILIES}


@pytest.mark.parametrize(
    ("text", "internal"),
    [
        ("Check failed: (a) is false", True),
        ("CodeGenVM cannot emit", True),
        ("conv2d: the window does not fit: axis 2 is h // 2, not at least 3", False),
    ],
)
def test_errors_of_tvm_are_internal(text: str, internal: bool):
    assert (run_networks.INTERNAL.search(text) is not None) is internal


def test_a_short_run_has_no_findings():
    with pool.own_environment():
        campaign = run_networks.Campaign(run_networks.Plan(seed=1))
        pool.run_in_workers(range(3, 6), campaign.one, limit=120)
    assert not campaign.findings()
    assert campaign.networks == {"right": 3}


def test_a_convolution_of_no_elements_is_one_of_its_padding():
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 17]>
        convolved (float[1, 1, n] x) => (float[1, 1, m] y)
        <float[1, 1, 3] w = {1, 2, 3}, float[1] b = {7}>
        { y = Conv<pads = [2, 2]>(x, w, b) }""")
    (values,) = expect(model, {"x": np.ones((1, 1, 0), "float32")}).values or [None]
    np.testing.assert_array_equal(values, [[[7, 7]]])
