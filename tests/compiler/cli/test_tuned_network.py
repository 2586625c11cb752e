"""Which records stay in the log of the best, decided by latencies that a test makes up."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from compiler.cli import tuned_network
from compiler.cli.console import Steps

UNDISTURBED = itertools.repeat((1.0, 1.0))


class Library(frozenset):
    """A build under some records."""

    metadata = SimpleNamespace(inputs=())


@pytest.fixture
def timed(monkeypatch):
    """Makes the latency of a set of records, and a noise that is the same for both of a round."""

    def use(latency, disturbance=UNDISTURBED):
        def in_turn(libraries, inputs, rounds):
            factors = [next(disturbance) for _ in range(rounds)]
            times = [
                [latency(each) * factor[i] for factor in factors]
                for i, each in enumerate(libraries)
            ]
            return times, []

        monkeypatch.setattr(tuned_network, "time_in_turn", in_turn)

    return use


def kept(lines):
    written = []

    def library(some):
        written.append(list(some))
        return Library(some)

    chosen, times, base = tuned_network.prune(library, list(lines), 7, Steps())
    assert written[-1] == chosen
    return chosen, times[0], base[0]


def test_records_stay_unless_the_network_is_faster_without_them(timed):
    timed(lambda records: 10 - 1 * ("a" in records) + 0.5 * ("b" in records))
    assert kept("ab") == (["a"], 9, 10)


def test_none_stay_that_only_slow_the_network(timed):
    timed(lambda records: 10 + len(records))
    assert kept("ab") == ([], 10, 10)


def test_a_network_without_records_takes_as_long_as_itself(timed):
    timed(lambda records: 10, itertools.cycle([(1.0, 1.3), (1.1, 0.9)]))
    _, after, before = kept("a")
    assert after == before


def test_rounds_that_contradict_each_other_show_no_gain(timed):
    swing = itertools.cycle([(0.5, 1.0), (1.0, 0.5)])
    timed(lambda records: 10 - len(records), swing)
    assert kept("ab")[0] == []


def test_disturbed_rounds_are_outvoted(timed):
    mostly_quiet = itertools.cycle([(1.0, 1.0)] * 6 + [(5.0, 1.0)])
    timed(lambda records: 10 - len(records), mostly_quiet)
    assert kept("ab")[0] == ["a", "b"]
