"""Random numbers from keys."""

from __future__ import annotations

import numpy as np

from compiler import relay


def _run(result):
    net = relay.Function([], result.astuple())
    return [part.numpy() for part in relay.create_executor("vm").evaluate(net)()]


def test_the_generator_is_threefry():
    # The known answer of Random123 for Threefry-4x64-20 with key and counter 0.
    key = relay.const(np.zeros(10, "uint64"), "uint64")
    _, words = _run(relay.random.threefry_generate(key, (4,)))
    assert [int(word) for word in words] == [
        0x09218EBDE6C85537,
        0x55941F5266D86105,
        0x4BD25E16282434DC,
        0xEE29EC846BD2E40B,
    ]


def test_the_next_key_goes_on_where_the_first_one_stopped():
    key = relay.random.threefry_key(7)
    following, first = _run(relay.random.threefry_generate(key, (8,)))
    _, both = _run(relay.random.threefry_generate(key, (16,)))
    _, second = _run(relay.random.threefry_generate(relay.const(following, "uint64"), (8,)))
    np.testing.assert_array_equal(np.concatenate([first, second]), both)


def test_split_keys_have_other_streams_also_when_depth_is_used_up():
    keys = [relay.random.threefry_key(3)]
    last = np.zeros(10, "uint64")
    last[8] = 1
    keys.append(relay.const(last, "uint64"))
    for key in keys:
        left, right = _run(relay.random.threefry_split(key))
        streams = [
            _run(relay.random.threefry_generate(relay.const(each, "uint64"), (4,)))[1]
            for each in (left, right)
        ]
        assert len({tuple(stream.tolist()) for stream in streams}) == 2


def test_distributions_have_their_moments():
    key = relay.random.threefry_key(11)
    _, values = _run(relay.random.uniform(key, (4000,), "float32", 2.0, 6.0))
    assert values.dtype == np.float32 and values.min() >= 2 and values.max() < 6
    assert abs(values.mean() - 4) < 0.1 and abs(values.std() - 4 / np.sqrt(12)) < 0.05
    _, values = _run(relay.random.normal(key, (4000,), "float64", 1.0, 3.0))
    assert abs(values.mean() - 1) < 0.2 and abs(values.std() - 3) < 0.15
    probs = relay.const(np.array([0.1, 0.0, 0.6, -0.2, 0.3], "float32"))
    _, classes = _run(relay.random.multinomial(key, probs, 4000))
    shares = np.bincount(classes, minlength=5) / 4000
    np.testing.assert_allclose(shares, [0.1, 0.0, 0.6, 0.0, 0.3], atol=0.04)
    assert shares[1] == shares[3] == 0
