from __future__ import annotations

import json

from compiler.cli.app import app


def figures(cli, *args):
    result = cli.invoke(app, ["machine", "--json", *args])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    return found, {figure["name"]: figure for figure in found["figures"]}


def test_another_cpu_has_its_own_row_and_nothing_measured(cli):
    found, named = figures(cli, "--target", "llvm -mcpu=znver4")
    assert found["row"] == "znver4"
    assert named["L2"]["known"] == 1024
    # 512-bit vectors pass a datapath of 256: 2 units x 8 lanes x 2 operations x 3.7 GHz.
    assert round(named["multiply-adds of a core"]["known"]) == 118
    if not found["is_host"]:
        assert all(figure["measured"] is None for figure in found["figures"])


def test_a_cpu_without_a_row_gets_the_one_of_its_vectors(cli):
    found, named = figures(cli, "--target", "llvm -mcpu=x86-64-v3")
    assert found["row"] == "vectors of 256 bits"
    assert named["vector registers"]["known"] == 16


def test_this_machine_is_measured(cli, monkeypatch):
    from compiler.cli import machine_peak

    monkeypatch.setattr(machine_peak, "memory_gbytes", lambda target, threads: 10.0)
    found, named = figures(cli)
    assert found["is_host"]
    assert 0.1 < named["clock while multiplying"]["measured"] < 20
    assert 1 < named["multiply-adds of a core"]["measured"] < 2000
    assert named["read from memory by a core"]["measured"] == 10.0
    assert named["L1"]["measured"] >= 16


def test_a_gpu_is_refused(cli):
    result = cli.invoke(app, ["machine", "--target", "llvm -mtriple=aarch64-linux-gnu"])
    assert result.exit_code == 1
    assert "x86 CPUs alone" in result.stderr
