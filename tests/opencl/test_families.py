"""CUDA's schedules as OpenCL, on Oclgrind, which looks for races, and on PoCL."""

import pytest

from .families import is_installed, run


def ran(platform, *names, **options):
    if not is_installed(platform):
        pytest.skip(f"{platform} is not installed: pip install 'baton-tvm[opencl]'")
    said = run(platform, *names, **options)
    if "reason" in said[-1]:
        pytest.skip(said[-1]["reason"])
    return {each["name"]: each for each in said}


def test_on_oclgrind_results_are_right_and_nobody_races():
    found = {name: said for name, said in ran("Oclgrind").items() if "without" not in said}
    assert len(found) >= 12
    assert {name: said["error"] + said["complaints"] for name, said in found.items()} == {
        name: "" for name in found
    }


def test_oclgrind_notices_barriers_that_are_missing():
    said = ran("Oclgrind", "transpose", "mean over an image", mutants=True)
    assert said["transpose"]["noticed"] == said["transpose"]["barriers"] == 1
    assert said["mean over an image"]["noticed"] >= said["mean over an image"]["barriers"] // 2


def test_on_pocl_results_are_right():
    found = {name: said for name, said in ran("PoCL").items() if "without" not in said}
    assert {name: said["error"] for name, said in found.items()} == {name: "" for name in found}
