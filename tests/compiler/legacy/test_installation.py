"""Old names come, work and go."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tvm

from compiler import legacy
from compiler.errors import LegacyImportError, TargetError


@pytest.fixture
def old_names():
    legacy.install(everything=True)
    yield
    legacy.uninstall()


def test_old_modules_are_the_projects_own(old_names):
    import compiler.autotvm.record
    import compiler.relay

    scope: dict = {}
    exec(
        "from tvm import relay, autotvm, auto_scheduler\n"
        "import tvm.autotvm.record as record\n"
        "from tvm.contrib import graph_executor, graph_runtime, utils, cc",
        scope,
    )
    assert scope["relay"] is compiler.relay
    assert scope["record"] is compiler.autotvm.record
    assert scope["graph_runtime"] is scope["graph_executor"]
    assert compiler.relay.__spec__.name == "compiler.relay"


def test_uninstall_takes_everything_back():
    before = set(dir(tvm)), tvm.target.Target.__init__, tvm.transform.PassContext.__init__
    legacy.install(everything=True)
    assert tvm.nd.array([1.0]).asnumpy() == 1
    legacy.uninstall()
    assert (set(dir(tvm)), tvm.target.Target.__init__, tvm.transform.PassContext.__init__) == before
    assert not hasattr(tvm, "nd")
    assert not hasattr(tvm.runtime.Tensor, "asnumpy")
    assert "tvm.relay" not in sys.modules


def test_uninstall_leaves_the_submodules_of_todays_packages():
    legacy.install(everything=True)
    import tvm.meta_schedule.tune as old

    legacy.uninstall()
    assert tvm.s_tir.meta_schedule.tune is old
    legacy.install(everything=True)
    legacy.uninstall()


def test_installing_twice_is_installing_once():
    legacy.install(everything=True)
    legacy.install(everything=True)
    legacy.uninstall()
    assert not legacy.is_installed()
    assert not hasattr(tvm, "nd")


@pytest.mark.parametrize("name", ["tvm.micro", "tvm.relay.collage"])
def test_what_is_gone_is_named_with_what_to_use_instead(old_names, name):
    with pytest.raises(LegacyImportError, match=name.split(".")[1]) as error:
        __import__(name)
    assert "nothing stands for it: " in str(error.value)


def test_what_is_gone_is_named_too_where_a_script_did_not_import_it(old_names):
    for use in (
        lambda: tvm.micro.get_microtvm_template_projects("zephyr"),
        lambda: tvm.contrib.micro.session.Session(),
    ):
        with pytest.raises(LegacyImportError, match=r"micro\.\w+ is gone .*: microTVM has no succ"):
            use()


def test_names_of_absent_modules_refuse_when_they_are_used(old_names):
    scope: dict = {}
    exec("from tvm.topi.x86.tensor_intrin import dot_16x1x16_uint8_int8_int32", scope)
    exec("from tvm.relay.op.strategy import conv2d_strategy", scope)
    exec(
        "from tvm.relay.op import strategy\nfrom tvm.relay.transform import mixed_precision", scope
    )
    assert scope["mixed_precision"].register_mixed_precision_conversion
    for use in (
        scope["dot_16x1x16_uint8_int8_int32"],
        scope["strategy"].wrap,
        scope["conv2d_strategy"],
    ):
        with pytest.raises(LegacyImportError, match=r"tvm\.(topi|relay)\..* is gone from TVM"):
            use()
    with pytest.raises(LegacyImportError, match=r"dot_16x1x16_uint8_int8_int32 is gone from TVM"):
        exec("class Own(dot_16x1x16_uint8_int8_int32): pass", scope)


def test_a_module_that_never_was_is_named(old_names):
    with pytest.raises(ImportError, match=r"tvm\.relay\.no_such_thing has no counterpart"):
        __import__("tvm.relay.no_such_thing")


def test_other_modules_of_tvm_are_found_as_before(old_names):
    with pytest.raises(ModuleNotFoundError, match=r"tvm\.no_such_thing"):
        __import__("tvm.no_such_thing")
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = tvm.no_such_thing


def test_arrays_have_their_old_methods(old_names):
    values = np.arange(6, dtype="float32").reshape(2, 3)
    array = tvm.nd.array(values, tvm.cpu(0))
    np.testing.assert_array_equal(array.asnumpy(), values)
    assert isinstance(array, tvm.nd.NDArray)
    assert array.ctx == tvm.context("cpu", 0)
    assert tvm.nd.array([1, 2]).dtype == "int64"


@pytest.mark.parametrize(
    ("text", "device"),
    [("llvm -mcpu=core-avx2", "cpu"), ("llvm", "cpu"), ("gpu", "cuda"), ("nvptx", "cuda")],
)
def test_a_device_may_be_named_by_a_target(old_names, text, device):
    assert tvm.device(text, 0) == getattr(tvm, device)(0)
    if device == "cpu":
        assert tvm.device(str(tvm.target.Target(text)), 0) == tvm.cpu(0)


def test_target_strings_with_options_are_read(old_names):
    target = tvm.target.Target("llvm -mcpu=core-avx2 -libs=cblas", host="llvm -mcpu=skylake")
    assert target.mcpu == "core-avx2"
    assert list(target.libs) == ["cblas"]
    assert target.host.mcpu == "skylake"
    assert tvm.target.create("cuda -arch=sm_80").arch == "sm_80"
    assert tvm.target.arm_cpu("rasp4b64").mcpu == "cortex-a72"
    assert tvm.target.cuda(arch="sm_70").model == "unknown"


def test_a_wrong_target_string_is_refused_by_name(old_names):
    with pytest.raises(TargetError, match="mcup"):
        tvm.target.Target("llvm -mcup=core-avx2")


def test_old_configuration_keys_are_translated_or_ignored_with_a_note(old_names, caplog):
    config = {"relay.backend.use_auto_scheduler": True, "tir.disable_vectorize": True}
    with tvm.transform.PassContext(opt_level=3, config=config) as context:
        assert dict(context.config) == {"tirx.disable_vectorize": True}
    assert "relay.backend.use_auto_scheduler is ignored" in caplog.text


@pytest.mark.parametrize("name", ["autotvm", "auto_scheduler"])
def test_loggers_have_their_old_names(old_names, name, caplog):
    today = logging.getLogger(f"baton.{name}")
    with caplog.at_level(logging.DEBUG, name):
        assert today.getEffectiveLevel() == logging.DEBUG
        legacy.uninstall()
        assert today.getEffectiveLevel() != logging.DEBUG


def test_a_key_that_nobody_ever_knew_stays_an_error(old_names):
    with pytest.raises(AttributeError, match=r"no\.such\.key"):
        tvm.transform.PassContext(config={"no.such.key": 1})
    with pytest.raises(AttributeError, match=r"tir\.no_such_key"):
        tvm.transform.PassContext(config={"tir.no_such_key": 1})


def test_baton_run_gives_a_script_its_arguments_and_the_old_names(tmp_path):
    script = tmp_path / "old.py"
    script.write_text(
        textwrap.dedent("""
            import sys
            import tvm
            from tvm import relay
            assert __name__ == "__main__"
            import beside
            print(sys.argv[1:], beside.VALUE, tvm.nd.array([1.5]).asnumpy()[0])
        """)
    )
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    words = [
        sys.executable,
        "-c",
        "from compiler.cli import main; main()",
        "run",
        str(script),
        "--n",
        "3",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[0] == "['--n', '3'] 7 1.5", done.stderr


def test_tables_of_external_compilers_are_found_by_their_old_names(old_names):
    from tvm.relay.op.contrib import get_pattern_table
    from tvm.relay.op.contrib.bnns import partition_for_bnns

    assert partition_for_bnns.__module__ == "compiler.relay.op.contrib.bnns"
    assert next(row[0] for row in get_pattern_table("cublas")) == "cublas.matmul"
    with pytest.raises(LegacyImportError, match="no backend for Arm Ethos"):
        import tvm.relay.op.contrib.ethosn  # noqa: F401


def test_every_module_that_moved_is_where_the_table_says():
    from compiler.legacy import import_hook, module_map

    assert [old for old, new in module_map.MOVED.items() if not import_hook.exists(new)] == []


def test_scripts_import_the_dialect_of_tir_by_its_old_name():
    with legacy.installed():
        from tvm.script import tir
        from tvm.tir.expr import Var

        assert tir.prim_func and Var is tvm.tirx.Var
