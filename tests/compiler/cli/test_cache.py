from __future__ import annotations

import json

import pytest

from compiler.cli.app import app
from compiler.lowering.cache.kernel_cache import LIMIT_VARIABLE, user_cache


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(LIMIT_VARIABLE, "1000000")


def test_info_counts_what_a_build_kept_and_clear_drops_it(cli, model, monkeypatch):
    # Libraries aren't kept beside the schedules that other tests of this process registered.
    monkeypatch.setattr("compiler.lowering.cache.key._registered", list)
    assert cli.invoke(app, ["compile", str(model)]).exit_code == 0
    result = cli.invoke(app, ["cache", "info", "--json"])
    assert result.exit_code == 0, result.stderr
    before = json.loads(result.stdout)
    assert before["folder"] == str(user_cache().folder)
    assert before["kernels"] == len(list(user_cache().folder.glob("*.kernel"))) > 0
    assert before["libraries"] == len(list(user_cache().folder.glob("*.library"))) == 1
    assert before["limit"] == 1000000
    assert json.loads(cli.invoke(app, ["cache", "clear", "--json"]).stdout) == before
    assert "0 kernels" in cli.invoke(app, ["cache", "info"]).stdout


def test_info_on_an_empty_cache_is_no_error(cli):
    result = cli.invoke(app, ["cache", "info"])
    assert result.exit_code == 0
    assert "0 kernels, 0 libraries, 0.0 MB (at most 1 MB" in result.stdout
    assert "dropped 0 kernels" in cli.invoke(app, ["cache", "clear"]).stdout


def test_info_says_when_the_cache_is_off(cli, monkeypatch):
    monkeypatch.setenv(LIMIT_VARIABLE, "0")
    assert "(off;" in cli.invoke(app, ["cache", "info"]).stdout


def test_another_action_is_a_usage_error(cli):
    assert cli.invoke(app, ["cache", "drop"]).exit_code == 2
