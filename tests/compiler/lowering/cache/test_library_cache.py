from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import auto_scheduler, autotvm, relay
from compiler.errors import BuildError
from compiler.lowering.cache import key
from compiler.lowering.cache.kernel_cache import LIMIT_VARIABLE, user_cache
from compiler.lowering.selection.schedule_source import ScheduleSource
from compiler.runtime import graph_executor, load_module
from compiler.target import parse
from schedules import strategy

ROOT = Path(__file__).resolve().parents[4]
CPU = "llvm -mcpu=x86-64-v3"
DRAFTS = ".baton-draft-*.tmp"
KEPT = "the library"
DATA = np.linspace(-1, 1, 4 * 32, dtype="float32").reshape(4, 32)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The cache's folder, empty and in use."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(LIMIT_VARIABLE, "1000000000")
    return tmp_path / "baton" / "kernels"


def network():
    """exp(x w) of 48 outputs; the weight is a parameter."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 32), "float32"))
    w = relax.Var("w", relax.TensorType((32, 48), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.exp(builder.emit(relax.op.matmul(x, w))))
        builder.emit_func_output(out)
    return builder.get()


def weight(seed=0):
    return np.random.default_rng(seed).standard_normal((32, 48)).astype("float32") / 8


def build(value=None, target=CPU, opt_level=3, mod_name="default", **context):
    with tvm.transform.PassContext(opt_level=opt_level, **context):
        params = {"w": weight() if value is None else value}
        return relay.build(network(), target, params=params, mod_name=mod_name)


def check(library, value=None):
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=DATA)
    exact = np.exp(DATA.astype("float64") @ (weight() if value is None else value))
    np.testing.assert_allclose(module.get_output(0).numpy(), exact, rtol=1e-5)


def kept_file(folder):
    (path,) = folder.glob("*.library")
    return path


def mapped_file(address):
    """The file whose pages lie at an address of this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, _, _, _, _, *path = line.split(maxsplit=5)
        first, end = (int(each, 16) for each in area.split("-"))
        if first <= address < end:
            return "".join(path)
    return ""


def test_the_weights_of_a_fresh_build_are_mapped_from_what_was_kept(folder):
    library = build()
    (kept,) = library.params.values()
    assert mapped_file(kept.data_ptr()) == str(kept_file(folder))
    check(library)


def dense_log(tile, tmp_path):
    record = {
        "input": [
            CPU,
            "dense_pack.x86",
            [["TENSOR", [4, 32], "float32"], ["TENSOR", [48, 32], "float32"], None, "float32"],
            {},
        ],
        "config": {
            "index": 1,
            "code_hash": None,
            "entity": [
                ["tile_y", "sp", [-1, 1, 2]],
                ["tile_x", "sp", [-1, 1, tile]],
                ["tile_k", "sp", [-1, 4]],
                ["tile_inner", "sp", [-1, 2]],
            ],
        },
        "result": [[1e-6], 0, 1.0, 2.0],
        "version": 0.2,
        "tvm_version": "0.18.0",
    }
    path = tmp_path / "dense.log"
    path.write_text(json.dumps(record) + "\n")
    return path


def test_a_build_done_before_is_restored_and_computes_and_exports_the_same(tmp_path):
    first = build()
    moving = 1  # the kernel that `PackStorage` calls, which is not an operator's
    assert first.report.cache == f"0 of {len(first.report.kernels) + moving} kernels"
    check(first)
    again = build()
    assert again.report.cache == KEPT
    assert KEPT in str(again.report)
    assert again.metadata.report["cache"] == KEPT
    assert again.report.kernels == first.report.kernels
    assert again.metadata.inputs == first.metadata.inputs
    check(again)
    for name in ("again.so", "again.tar"):
        again.export_library(tmp_path / name)
        check(load_module(tmp_path / name, verify_weights=True))


def test_constants_of_the_module_count_as_its_parameters_do():
    def frozen(seed):
        mod = relax.transform.BindParams("main", {"w": weight(seed)})(network())
        with tvm.transform.PassContext(opt_level=3):
            return relay.build(mod, CPU)

    frozen(0)
    assert frozen(0).report.cache == KEPT
    other = frozen(1)
    assert other.report.cache != KEPT
    check(other, weight(1))


def test_another_value_of_one_weight_is_another_library(folder):
    build()
    value = weight()
    value[31, 47] += 1
    other = build(value)
    assert other.report.cache != KEPT
    check(other, value)
    assert len(list(folder.glob("*.library"))) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"target": "llvm -mcpu=x86-64"},
        {"target": CPU + " -num-cores=7"},
        {"opt_level": 2},
        {"disabled_pass": ["FastMath"]},
        {"required_pass": ["StaticAllocation"]},
        {"config": {"tirx.disable_assert": True}},
        {"mod_name": "other"},
    ],
)
def test_whatever_decides_a_build_decides_the_key(other):
    build()
    assert build(**other).report.cache != KEPT
    assert build(**other).report.cache == KEPT
    assert build().report.cache == KEPT


def test_another_version_of_the_code_finds_nothing(monkeypatch):
    build()
    monkeypatch.setattr(key, "code_version", lambda: "another")
    assert build().report.cache != KEPT


def test_the_library_follows_the_tuning_log(tmp_path):
    def sources():
        with autotvm.apply_history_best(str(tmp_path / "dense.log")):
            library = build()
        check(library)
        return library.report.cache == KEPT, [k.source for k in library.report.kernels]

    without = [kernel.source for kernel in build().report.kernels]
    dense_log(8, tmp_path)
    kept, used = sources()
    assert not kept
    assert used != without
    assert "topi:dense.log:1" in used
    assert sources() == (True, used)
    dense_log(16, tmp_path)
    assert not sources()[0]
    restored = build()
    assert restored.report.cache == KEPT
    assert [kernel.source for kernel in restored.report.kernels] == without


def test_the_digest_of_a_log_changes_with_each_of_its_records(tmp_path):
    def digest(tile):
        with autotvm.apply_history_best(str(dense_log(tile, tmp_path))):
            return ScheduleSource.from_contexts().content_digest()

    assert digest(8) == digest(8) != digest(16)


def test_warnings_of_the_build_are_repeated(caplog):
    def warnings():
        caplog.clear()
        with auto_scheduler.ApplyHistoryBest([]):
            library = build()
        return library, [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]

    first, said = warnings()
    assert len(said) == 1
    assert "have no auto_scheduler record" in said[0]
    again, repeated = warnings()
    assert again.report.cache == KEPT
    assert repeated == said
    assert again.report.notes == first.report.notes


@pytest.mark.parametrize("at", [0, 70, 3000, -300, -20, -1])
def test_a_changed_byte_anywhere_has_the_library_built_again(folder, at, caplog):
    build()
    content = bytearray(kept_file(folder).read_bytes())
    content[at] ^= 1
    kept_file(folder).write_bytes(content)
    library = build()
    assert library.report.cache != KEPT
    assert "is damaged" in caplog.text
    check(library)
    assert build().report.cache == KEPT


@pytest.mark.parametrize("share", [0.0, 0.001, 0.4, 0.9, 0.999])
def test_a_truncated_file_has_the_library_built_again(folder, share):
    build()
    content = kept_file(folder).read_bytes()
    kept_file(folder).write_bytes(content[: int(len(content) * share)])
    library = build()
    assert library.report.cache != KEPT
    check(library)


def test_a_kernel_that_is_gone_has_the_library_built_again(folder):
    build()
    next(iter(folder.glob("*.kernel"))).unlink()
    library = build()
    assert library.report.cache != KEPT
    check(library)
    assert build().report.cache == KEPT


def test_a_library_that_would_fill_half_of_the_cache_is_not_kept(folder, monkeypatch):
    monkeypatch.setenv(LIMIT_VARIABLE, str(2 * weight().nbytes - 1))
    check(build())
    assert list(folder.glob("*.library")) == []


def test_the_least_recently_used_library_goes_first(folder, monkeypatch):
    for position, seed in enumerate((0, 1, 2)):
        before = set(folder.glob("*"))
        build(weight(seed))
        for path in set(folder.glob("*")) - before:
            os.utime(path, (position, position))
    build(weight(0))  # now the most recently used
    size = max(path.stat().st_size for path in folder.glob("*.library"))
    monkeypatch.setenv(LIMIT_VARIABLE, str(user_cache().usage().bytes - size // 2))
    user_cache().trim()
    assert build(weight(0)).report.cache == KEPT
    assert build(weight(1)).report.cache != KEPT


def test_a_callers_tensor_that_changes_after_the_build_changes_no_library():
    kernel = tvm.runtime.tensor(weight())
    library = build(kernel)
    kernel.copyfrom(np.zeros((32, 48), "float32"))
    check(library)
    again = build()
    assert again.report.cache == KEPT
    check(again)


def test_the_graph_s_own_output_of_a_weight_is_a_copy_of_the_callers_tensor():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 128), "float32"))
    b = relax.Var("b", relax.TensorType((128,), "float32"))
    with builder.function("main", [x, b]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.add(x, b))
        builder.emit_func_output(out)
    bias = tvm.runtime.tensor(np.ones(128, "float32"))
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(builder.get(), CPU, params={"b": bias})
    bias.copyfrom(np.zeros(128, "float32"))
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    module.run(x=np.zeros((4, 128), "float32"))
    np.testing.assert_array_equal(module.get_output(0).numpy(), np.ones((4, 128), "float32"))


class TestWhatCannotBeKeyed:
    def obstacle(self, mod=None, target=CPU):
        source = ScheduleSource.from_contexts()
        return key.obstacle(mod or network(), parse(target), source)

    def test_a_plain_build_can_be(self):
        assert self.obstacle() == ""

    def test_pass_instruments(self, folder):
        @tvm.instrument.pass_instrument
        class Nothing:
            pass

        library = build(instruments=[Nothing()])
        assert "; not the library, because a pass instrument is active" in library.report.cache
        assert list(folder.glob("*.library")) == []

    def test_gpus(self):
        assert self.obstacle(target="cuda -arch=sm_80") == ""
        source = ScheduleSource.from_contexts()
        reason = key.obstacle(network(), tvm.target.Target("vulkan"), source)
        assert "other devices" in reason

    def test_measured_choices(self, tmp_path):
        log = str(dense_log(8, tmp_path))
        with autotvm.ApplyHistoryBest(log, prefer="fastest"):
            assert "dispatch contexts" in self.obstacle()

    def test_contexts_of_the_callers_own(self):
        class Mine(autotvm.DispatchContext):
            def find(self, target, workload):
                return None

        with Mine():
            assert "dispatch contexts" in self.obstacle()

    def test_schedules_that_somebody_else_registered(self, monkeypatch):
        mine = strategy.Implementation(
            "mine", 1, lambda *_: False, lambda *_: None, lambda *_: None
        )
        monkeypatch.setitem(strategy._STRATEGIES, ("nn.mine", "cpu"), [mine])
        assert __name__ in self.obstacle()


BUILDER = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from tests.compiler.lowering.cache import test_library_cache as t
from compiler.lowering.cache import library_cache
if sys.argv[2] == "stall":
    def stall(file, metadata, params):
        file.write(b"half")
        file.flush()
        print("writing", flush=True)
        time.sleep(600)
    library_cache.write_weights = stall
    t.build()
for turn in range(4):
    library = t.build(t.weight(turn % 2))
    t.check(library, t.weight(turn % 2))
assert library.report.cache == t.KEPT, library.report.cache
"""


def start_builder(mode):
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(ROOT), mode],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_build_that_is_killed_while_it_writes_leaves_nothing_that_is_read(folder):
    builder = start_builder("stall")
    assert builder.stdout.readline() == "writing\n"
    builder.send_signal(signal.SIGKILL)
    builder.communicate()
    assert len(list(folder.glob(DRAFTS))) == 1
    assert list(folder.glob("*.library")) == []
    check(build())
    assert build().report.cache == KEPT
    user_cache().trim()
    assert list(folder.glob(DRAFTS)) == []


def test_builds_side_by_side_agree(folder):
    builders = [start_builder("run") for _ in range(2)]
    for builder in builders:
        _, complaints = builder.communicate(timeout=120)
        assert builder.returncode == 0, complaints
    assert len(list(folder.glob("*.library"))) == 2
    assert list(folder.glob(DRAFTS)) == []


def test_a_setting_that_decides_what_operators_become_is_part_of_the_key(folder):
    x = relay.var("x", shape=(16,), dtype="int32")
    one, sixteen, zero = relay.const(1.0), relay.const(16.0), relay.const(0)
    y = relay.qnn.requantize(x, one, zero, sixteen, zero, out_dtype="int8")
    mod = tvm.IRModule.from_expr(relay.Function([x], y))
    found = {}
    for rounding in ("UPWARD", "TONEAREST", "UPWARD"):
        with relay.qnn.requantize_config(rounding=rounding):
            executor = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
        executor.run(x=np.full(16, -8, "int32"))
        found[rounding] = int(executor.get_output(0).numpy()[0])
    assert found == {"UPWARD": 0, "TONEAREST": -1}


def test_a_build_that_fails_after_its_weights_were_written_keeps_nothing(folder, monkeypatch):
    def fail(*_):
        raise BuildError("no code")

    with monkeypatch.context() as patched:
        patched.setattr("compiler.lowering.steps.link", fail)
        with pytest.raises(BuildError, match="no code"):
            build()
    assert list(folder.glob("*.library")) == list(folder.glob(DRAFTS)) == []
    check(build())
    assert build().report.cache == KEPT
