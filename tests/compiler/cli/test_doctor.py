from __future__ import annotations

import json

import pytest
import tvm

from compiler.cli import doctor
from compiler.cli.app import app


def test_json_names_what_is_there_and_builds_for_this_cpu_work(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = cli.invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["problems"] == []
    assert found["packages"]["apache-tvm"].startswith("0.27")
    assert found["cpu"]["machine"]["vector_bits"] % 128 == 0
    assert found["cpu"]["trial"] == "a kernel compiles and gives right results"
    cache = {"folder": str(tmp_path / "baton" / "kernels"), "writable": True, "bytes": 0}
    assert cache.items() <= found["cache"].items()
    for piece in ("driver", "runtime", "nvcc", "cublaslt", "cudnn"):
        assert found["cuda"][piece] or found["cuda"][f"{piece} missing"]


def test_the_exit_code_says_when_builds_for_this_cpu_fail(cli, monkeypatch):
    def without_llvm(name, allow_missing=False):
        return None if name.startswith("target.build.") else found(name, allow_missing)

    found = tvm.get_global_func
    monkeypatch.setattr(tvm, "get_global_func", without_llvm)
    result = cli.invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "PROBLEM: no build for this CPU" in result.stdout
    assert "no code generator for 'llvm'" in result.stdout


@pytest.mark.parametrize(
    ("requirement", "fits"),
    [
        ("some==1.2.0.post1", True),
        ("some>=1.2.0.post0,<1.3", True),
        ("some<1.2", False),
        ("some!=1.2.0.post1", False),
        ("absent>=1", False),
    ],
)
def test_versions_are_held_against_what_baton_asks_for(requirement, fits, monkeypatch):
    monkeypatch.setattr(doctor, "package_version", {"some": "1.2.0.post1"}.get)
    assert doctor.fulfils(requirement) is fits
