"""The kit for a first run on a GPU: its runner, its weights, and a kernel of it, without a GPU."""

import json
import lzma
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from scripts.gpu_kit import pack, prebuild, trim
from scripts.gpu_kit.on_device import weights
from scripts.gpu_kit.recipes import SMALL, find_recipes
from tests import cuda_mock
from tests.ptx import ptxas
from tests.schedules.cuda.families import FAMILIES

STEPS = """
import os, time

def good():
    print("words of a tool: Race here")
    return {"status": "right", "difference": 0.5}

def bad():
    return {"status": "wrong", "difference": 7.0}

def raises():
    raise ValueError("out of ideas")

def crashes():
    os.kill(os.getpid(), 11)

def hangs():
    time.sleep(600)
"""


def kit(folder, stages):
    """A kit whose only package is the worker, with these steps."""
    made = folder / "kit"
    package = folder / "base" / "scripts" / "gpu_kit" / "on_device"
    package.mkdir(parents=True)
    made.mkdir()
    shutil.copy(pack.ON_DEVICE / "worker.py", package)
    (package / "steps.py").write_text(STEPS)
    with (
        lzma.open(folder / "base.tar.xz", "wb") as stream,
        tarfile.open(fileobj=stream, mode="w|") as archive,
    ):
        archive.add(folder / "base" / "scripts", "scripts")
    content = (folder / "base.tar.xz").read_bytes()
    for at, piece in enumerate((content[:100], content[100:])):
        (made / f"base.{at}").write_bytes(piece)
    (made / "pieces.json").write_text(json.dumps({"base": ["base.0", "base.1"], "compiler": ["-"]}))
    (made / "stages.json").write_text(json.dumps(stages))
    shutil.copy(pack.ON_DEVICE / "runner.py", made)
    shutil.copy(pack.ON_DEVICE.parent / "run.sh", made)
    return made


def stage(letter, *names, **more):
    steps = [pack.step(name, f"steps:{name}") for name in names]
    limits = {"seconds": 60, "step_seconds": 2, "start_seconds": 30}
    return {"stage": letter, "steps": steps, **limits, **more}


def ran(folder, stages, *options, lose=()):
    made = kit(folder, stages)
    for name in lose:
        (made / name).unlink()
    variables = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder / "nowhere"),
        "BATON_KIT_PYTHON": sys.executable,
        "BATON_KIT_RESULTS": str(folder / "out"),
    }
    command = [str(made / "run.sh"), *options]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
    lines = (folder / "out" / "results.jsonl").read_text().splitlines()
    return done, [json.loads(line) for line in lines]


def statuses(results):
    noted = ("machine", "whole stage")
    return [(each["step"], each["status"]) for each in results if each["step"] not in noted]


def test_steps_that_fail_crash_hang_or_are_wrong_do_not_end_the_run(tmp_path):
    names = ("crashes", "good", "raises", "hangs", "bad", "good")
    done, results = ran(tmp_path, [stage("a", *names), stage("b", "good")])
    assert done.returncode == 1, done.stderr
    assert statuses(results) == [
        ("crashes", "crashed"),
        ("good", "right"),
        ("raises", "failed"),
        ("hangs", "hung"),
        ("bad", "wrong"),
        ("good", "right"),
        ("good", "right"),
    ]
    by_step = {each["step"]: each for each in results}
    assert by_step["crashes"]["exit"] == -11
    assert by_step["raises"]["because"] == "ValueError: out of ideas"
    assert by_step["bad"]["difference"] == 7.0
    table = (tmp_path / "out" / "results.txt").read_text()
    assert "stage a: 1 crashed, 2 right, 1 failed, 1 hung, 1 wrong" in table
    assert "out of ideas" in (tmp_path / "out" / "log.txt").read_text()
    assert not (tmp_path / "nowhere").exists()


def test_a_stage_ends_at_its_limit_and_the_next_one_runs(tmp_path):
    stages = [stage("a", "good", "hangs", "good", seconds=3, step_seconds=60), stage("b", "good")]
    _, results = ran(tmp_path, stages)
    assert statuses(results) == [
        ("good", "right"),
        ("hangs", "cut off"),
        ("good", "not reached"),
        ("good", "right"),
    ]


def test_a_worker_that_does_not_start_is_reported_and_the_run_ends(tmp_path):
    _, results = ran(tmp_path, [stage("a", "good", "good", under=["/bin/false"])])
    assert statuses(results) == [("good", "crashed"), ("good", "crashed")]


def test_complaints_of_a_tool_make_a_stage_wrong(tmp_path):
    _, results = ran(tmp_path, [stage("c", "good", complaints="Race")])
    assert statuses(results) == [("good", "right"), ("complaints of the tool", "wrong")]
    assert results[-2]["first"] == "words of a tool: Race here"


def test_what_is_missing_skips_a_stage(tmp_path):
    stages = [stage("f", "good", compiler=True), stage("c", "good", under=["no-such-tool"])]
    _, results = ran(tmp_path, stages)
    assert statuses(results) == [("all", "skipped"), ("all", "skipped")]
    assert "pieces of compiler are missing" in results[1]["because"]
    (tmp_path / "again").mkdir()
    _, results = ran(tmp_path / "again", [stage("a", "good")], lose=["base.1"])
    assert statuses(results) == [("all", "skipped")]


def test_a_later_call_keeps_the_results_of_other_stages(tmp_path):
    stages = [stage("a", "bad"), stage("b", "good")]
    ran(tmp_path, stages)
    shutil.rmtree(tmp_path / "kit"), shutil.rmtree(tmp_path / "base")
    _, results = ran(tmp_path, [stage("a", "good"), stage("b", "bad")], "--stages", "a")
    assert sorted(statuses(results)) == [("good", "right"), ("good", "right")]


def listed():
    """A case of each kind."""
    network = {"kind": "network", "case": "n", "title": "as a CUDA graph"}
    return [
        {"kind": "family", "case": "f", "title": "softmax"},
        network,
        {**network, "case": "c", "backend": "gpu_kit_on_the_cpu"},
        {**network, "case": "l", "backend": "cudnn"},
        {"kind": "model", "case": "model_minilm", "title": "minilm tf32", "dtype": "tf32"},
        {"kind": "timed", "case": "t", "title": "product", "dtype": "float16"},
    ]


def test_stages_take_less_than_two_minutes_and_their_steps_exist():
    stages = pack.stages(listed())
    assert [each["stage"] for each in stages] == ["a", "b", "c1", "c2", "d1", "d2", "e", "f", "d3"]
    for each in stages:
        assert each["seconds"] < 120 and each["steps"]
        assert each["start_seconds"] < each["seconds"] > each["step_seconds"]
        for step in each["steps"]:
            module, _, function = step["run"].partition(":")
            source = (pack.ON_DEVICE / f"{module}.py").read_text()
            assert f"\ndef {function}(" in source
    assert [each["stage"] for each in stages if each.get("compiler")] == ["f"]


def test_weights_are_made_of_the_models_bit_by_bit():
    rng = np.random.default_rng(0)
    conv, table = rng.normal(size=(8, 4, 3, 3)), rng.normal(size=(50, 16))
    q, k, v = rng.normal(size=(3, 12, 20))
    sources = {
        name: values.astype("float32")
        for name, values in {"conv": conv, "table": table, "q": q, "k": k, "v": v}.items()
    }
    scale = rng.uniform(0.5, 2, (8, 1, 1, 1)).astype("float32")
    scaled = (sources["conv"] * scale).transpose(0, 2, 3, 1)
    wanted = {
        "p0": np.ascontiguousarray(scaled),
        "p1": np.concatenate([sources[name].T for name in "qkv"], 1).astype("float16"),
        "p2": sources["table"][[3, 3, 7]].reshape(1, 3, 16),
        "p3": np.arange(5),
    }
    scales = {}
    recipes, arrays = find_recipes(sources, wanted, scales)
    assert sorted(arrays) == ["p3", "scale of conv"]
    for name, values in wanted.items():
        found = weights.apply_recipe(recipes[name], sources, arrays)
        assert found.dtype == values.dtype and found.tobytes() == values.tobytes()
    half = {"p0": wanted["p0"].astype("float16")}
    again, _ = find_recipes(sources, half, scales)
    assert again["p0"]["parts"][0]["scale"] == "scale of conv"


def test_a_large_weight_without_a_recipe_is_an_error():
    strange = np.random.default_rng(0).normal(size=SMALL)
    with pytest.raises(ValueError, match=r"weight p7 .*no recipe"):
        find_recipes({}, {"p7": strange}, {})


def test_seeded_weights_are_those_of_the_model():
    from onnx import numpy_helper

    from compiler.models import fill_weights

    info = prebuild.described("squeezenet1_1")
    for each in fill_weights.hydrate("squeezenet1_1").graph.initializer:
        if each.name in info:
            made = weights.seeded(each.name, info[each.name])
            assert np.array_equal(made, numpy_helper.to_array(each))


def test_cases_of_other_sources_are_built_again(tmp_path):
    for digest, kept in (("one", False), ("one", True), ("two", False)):
        folder = prebuild.Folder(tmp_path, digest)
        assert (tmp_path / "case.npz").exists() == kept
        folder.keep("case.npz", lambda path: path.write_bytes(b"built"))
        folder.keep("compiler-1.xz", lambda path: path.write_bytes(b"packed"))
    assert (tmp_path / "compiler-1.xz").exists()
    assert len(prebuild.sources_digest()) == 64


def test_only_long_untouched_stretches_of_code_are_left_out():
    """A library: a page of headers, 64 pages of code, and one more page."""
    header = bytearray(trim.PAGE)
    header[32:40] = (64).to_bytes(8, "little")  # program headers
    header[54:58] = bytes([56, 0, 2, 0])  # size and number of these
    header[64:72] = bytes([1, 0, 0, 0, 4, 0, 0, 0])  # a segment that is only read
    header[120:128] = bytes([1, 0, 0, 0, 5, 0, 0, 0])
    header[128:136] = trim.PAGE.to_bytes(8, "little")
    pages = 64
    content = bytes(header) + bytes(range(1, 1 + pages)) * trim.PAGE + b"after"
    touched = np.zeros(pages, "uint8")
    touched[[0, 10, 40]] = 1
    found = np.frombuffer(trim.trimmed(content, touched), np.uint8)
    changed = np.flatnonzero(found != np.frombuffer(content, np.uint8)) // trim.PAGE - 1
    assert sorted(set(changed)) == list(range(10 + 1 + trim.MARGIN, 40 - trim.MARGIN))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_pages_of_the_compiler_that_run_are_noted():
    some = np.frombuffer(trim.traced("import tvm"), np.uint8)
    more = np.frombuffer(trim.traced("import tvm; tvm.target.Target('llvm')"), np.uint8)
    assert 100 < some.sum() < more.sum() < len(some) == len(more)
    assert (more >= some).mean() > 0.99


WORKER = """
import json, sys
from tests.cuda_mock.device import Device
device = Device(execute=sys.argv[1] == "compute")
from scripts.gpu_kit.on_device import cases
print(json.dumps(cases.family(sys.argv[2])))
assert not device.problems and not device.errors
"""


@pytest.mark.skipif(
    cuda_mock.COMPILER is None or ptxas.NVCC is None, reason="needs a C compiler and nvcc"
)
@pytest.mark.parametrize(
    ("name", "archs"), [("product, bfloat16", ["sm_90"]), ("wgmma, uint8", ["sm_90a"])]
)
def test_a_prebuilt_kernel_runs_from_its_fatbin_without_the_compiler(
    tmp_path, monkeypatch, name, archs
):
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-no-compress")
    (family,) = (each for each in FAMILIES if each.name == name)
    case = prebuild.family(prebuild.Folder(tmp_path / "cases"), family, archs)
    (tmp_path / "cases" / "cases.json").write_text(json.dumps([case]))
    home = cuda_mock.make_home(tmp_path / "home", ptxas.NVCC)
    found = {}
    for how in ("compute", "pass"):
        variables = {"BATON_KIT_FOLDER": str(tmp_path), "TVM_USE_RUNTIME_LIB": "1"}
        (line,) = cuda_mock.run(WORKER, home, how, case["case"], **variables)
        found[how] = json.loads(line)["status"]
    assert found == {"compute": "right", "pass": "wrong"}


@pytest.mark.skipif(
    cuda_mock.COMPILER is None or ptxas.NVCC is None, reason="needs a C compiler and nvcc"
)
def test_a_kernel_for_other_gpus_is_skipped(tmp_path, monkeypatch):
    (family,) = (each for each in FAMILIES if each.name == "transpose")
    case = prebuild.family(prebuild.Folder(tmp_path / "cases"), family, ["sm_80"])
    (tmp_path / "cases" / "cases.json").write_text(json.dumps([case]))
    home = cuda_mock.make_home(tmp_path / "home", ptxas.NVCC)
    variables = {"BATON_KIT_FOLDER": str(tmp_path), "TVM_USE_RUNTIME_LIB": "1"}
    (line,) = cuda_mock.run(WORKER, home, "pass", case["case"], **variables)
    said = json.loads(line)
    assert said["status"] == "skipped"
    assert "-sm_90a.so" in said["because"]
