"""The transcript of a journey, and the programs of its user's where that needs no wheel."""

import json
import pathlib
import subprocess
import sys

import pytest

from compiler import relay

PROGRAMS = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "release" / "journey_programs"


@pytest.fixture
def script():
    """The script as a module."""
    from scripts.release import journey

    return journey


@pytest.fixture
def dist(tmp_path):
    folder = tmp_path / "dist"
    folder.mkdir()
    for name in ("baton_tvm", "baton_runtime"):
        (folder / f"{name}-1.0-py3-none-any.whl").touch()
    return folder


def steps(script, *ends):
    """Steps of a journey that end as given: with a text, or an error."""

    def step(number, end):
        def run():
            if isinstance(end, Exception):
                raise end
            return end

        run.__name__ = f"step{number}"
        return run

    return lambda _: [step(number, end) for number, end in enumerate(ends)]


def test_a_line_for_each_step_up_to_one_that_fails(script, dist, monkeypatch, capsys):
    missing = script.Missing("no compiler")
    failed = script.CommandError("baton: status 1\nits last words")
    monkeypatch.setattr(script.Journey, "steps", steps(script, "3 MB", missing, failed, "never"))
    assert script.main([str(dist), "--short"]) == 1
    told = capsys.readouterr().out
    lines = [line.split() for line in told.splitlines()]
    assert [line[:2] for line in lines[:3]] == [
        ["ok", "step0"],
        ["skipped", "step1"],
        ["FAILED", "step2"],
    ]
    assert "never" not in told
    monkeypatch.setattr(script.Journey, "steps", steps(script, "3 MB", missing))
    assert script.main([str(dist)]) == 0


def test_two_wheels_of_a_kind_are_an_error(script, dist):
    (dist / "baton_tvm-2.0-py3-none-any.whl").touch()
    with pytest.raises(SystemExit, match="2 wheels baton_tvm"):
        script.main([str(dist)])


def run(name, *arguments):
    command = [sys.executable, str(PROGRAMS / f"{name}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_users_programs(tmp_path):
    model, cases, library = (tmp_path / name for name in ("m.onnx", "cases.npz", "m.so"))
    run("small_model", model)
    run("reference", model, cases)
    mod, params = relay.frontend.from_onnx(str(model))
    relay.build(mod, "llvm", params=params).export_library(str(library))
    for how in ((), ("fork",)):
        assert 0 < float(run("deployed", library, cases, *how)) < 1e-5
    for engine, path in (("baton", library), ("onnxruntime", model)):
        found = json.loads(run("many_requests", engine, path, cases, 4, 200))
        assert (found["requests"], found["wrong"]) == (200, 0)
