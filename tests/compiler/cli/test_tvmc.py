"""`tvmc` as a command and in Python, over `relay.build`, the tuners and exported libraries."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tarfile

import numpy as np
import onnx
import pytest
import tvm

from compiler import legacy, relay
from compiler.cli import tvmc
from compiler.cli.tvmc import (
    autotuner,
    composite_target,
    config_options,
    frontends,
    main,
    pass_config,
    pass_list,
    registry,
    runner,
    shape_parser,
    target,
    tasks,
    tracker,
    transform,
)
from compiler.relay.backend import Executor

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((4, 3, 3, 3), dtype=np.float32)
DATA = RNG.standard_normal((1, 3, 8, 8), dtype=np.float32)


@pytest.fixture
def model(tmp_path):
    """A convolution and a relu, whose input's height the file leaves open."""
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = make.make_graph(
        [
            make.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            make.make_node("Relu", ["c"], ["y"]),
        ],
        "net",
        [make.make_tensor_value_info("x", kind, [1, 3, "h", 8])],
        [make.make_tensor_value_info("y", kind, [1, 4, "h", 8])],
        [onnx.numpy_helper.from_array(WEIGHT, "w")],
    )
    path = tmp_path / "net.onnx"
    opsets = [make.make_opsetid("", 13)]
    onnx.save(make.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def expected():
    padded = np.pad(DATA, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.maximum(np.einsum("bcyxij,ocij->boyx", windows, WEIGHT), 0)


SHAPES = ["--input-shapes", "x:[1,3,8,8]"]


def test_the_command_compiles_and_runs_a_package(model, tmp_path, capsys):
    package, outputs, inputs = (tmp_path / name for name in ("net.tar", "out.npz", "in.npz"))
    np.savez(inputs, x=DATA)
    words = ["compile", "--target", "llvm", "--target-llvm-num-cores=1", "-o", str(package)]
    words += ["--dump-code", "relay,asm", "--desired-layout", "NHWC", "-O", "2", *SHAPES]
    assert main._main([*words, str(model)]) == 0
    assert "nn.conv2d" in (tmp_path / "net.tar.relay").read_text()
    assert ".text" in (tmp_path / "net.tar.asm").read_text()
    words = ["run", "-i", str(inputs), "-o", str(outputs), "--print-time", "--profile"]
    assert main._main([*words, "--print-top", "2", str(package)]) == 0
    np.testing.assert_allclose(np.load(outputs)["output_0"], expected(), rtol=1e-4, atol=1e-5)
    printed = capsys.readouterr().out
    assert "mean (ms)" in printed and "conv2d" in printed


def test_a_package_is_what_scripts_unpack(model, tmp_path):
    loaded = tvmc.load(model, shape_dict={"x": [1, 3, 8, 8]})
    package = tvmc.compile(loaded, target="llvm", package_path=str(tmp_path / "net.tar"))
    with legacy.installed():
        from tvm.contrib import graph_executor

        library = tvm.runtime.load_module(package.lib_path)
        module = graph_executor.create(package.graph, library, tvm.cpu())
        module.load_params(package.params)
        module.set_input("x", DATA)
        module.run()
    np.testing.assert_allclose(module.get_output(0).numpy(), expected(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scheduler", [False, True])
def test_a_model_is_tuned_and_built_with_the_records(model, tmp_path, scheduler):
    log = tmp_path / "records.json"
    words = ["tune", "--target", "llvm", "-o", str(log), "--trials", "1", "--number", "1"]
    words += ["--min-repeat-ms", "0", "--tuner", "random", *SHAPES, str(model)]
    assert main._main([*words, *(["--enable-autoscheduler"] if scheduler else [])]) == 0
    assert log.read_text()
    loaded = tvmc.load(model, shape_dict={"x": [1, 3, 8, 8]})
    package = tvmc.compile(loaded, target="llvm", tuning_records=str(log))
    result = tvmc.run(package, device="cpu", inputs={"x": DATA})
    np.testing.assert_allclose(result.get_output("output_0"), expected(), rtol=1e-4, atol=1e-5)


def test_a_model_is_saved_with_what_was_made_of_it(model, tmp_path):
    first = tvmc.load(model, shape_dict={"x": [1, 3, 8, 8]})
    tvmc.compile(first, target="llvm")
    first.save(tmp_path / "saved.tar")
    second = tvmc.TVMCModel(model_path=tmp_path / "saved.tar")
    assert str(second.mod) == str(first.mod)
    result = tvmc.run(tvmc.TVMCPackage(second.default_package_path()), "cpu", inputs={"x": DATA})
    np.testing.assert_allclose(result.get_output("output_0"), expected(), rtol=1e-4, atol=1e-5)


def test_flags_come_from_a_file_too(model, tmp_path):
    config = tmp_path / "flags.json"
    config.write_text(json.dumps({"target": [{"kind": "llvm", "num-cores": 1}], "opt-level": 1}))
    package = tmp_path / "net.tar"
    words = ["compile", "--config", str(config), "-o", str(package), *SHAPES, str(model)]
    assert main._main(words) == 0
    assert tvmc.TVMCPackage(str(package)).type == "classic"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["micro", "create", "x"], "tvmc micro is gone from TVM: microTVM has no successor"),
        (["compile", "--target", "llvm", "NET.xyz"], "Please specify --model-format"),
        (["compile", "--target", "llvm", "NET.h5"], "no importer for 'keras' is left"),
        (["compile", "--target", "ethos-u, llvm", "NET"], "'ethos-u': no such backend is left"),
        (["compile", "--target", "llvm", "--pass-config", "x", "NET"], "give key=value"),
        (["compile", "--target", "llvm", "-f", "mlf", "NET"], "'mlf' belonged to microTVM"),
        (["compile", "--target", "llvm", "--dump-code", "ll", "NET"], "can't dump ll"),
        (["run", "NET"], "is not a package of tvmc"),
    ],
)
def test_what_can_not_be_is_said(model, capsys, words, message):
    for suffix in ("xyz", "h5"):
        model.with_name(f"net.onnx.{suffix}").touch()
    words = [word.replace("NET", str(model)) for word in words]
    shapes = SHAPES if words[0] == "compile" else []
    assert main._main([words[0], *shapes, *words[1:]]) == 4
    assert message.lower() in capsys.readouterr().err.lower()


def test_inputs_are_filled_and_checked():
    made = runner.make_inputs_dict(
        {"a": (2,), "b": (3,)}, {"a": "uint8", "b": "float32"}, {}, "ones"
    )
    assert made["a"].tolist() == [1, 1] and made["b"].dtype == "float32"
    with pytest.raises(tvmc.TVMCException, match="'c' is not in the graph"):
        runner.make_inputs_dict({"a": (2,)}, {"a": "uint8"}, {"c": DATA})


def test_targets_and_shapes_are_read():
    text = "dnnl -use_fp16='a, b', opencl -device=mali, llvm -mtriple=aarch64-linux-gnu"
    chosen, (extra,) = target.target_from_cli(text, {"opencl": {"max_num_threads": 404}})
    assert extra["name"] == "dnnl" and extra["opts"] == {"use_fp16": "a, b"}
    assert chosen.kind.name == "opencl" and int(chosen.attrs["max_num_threads"]) == 404
    assert chosen.host.attrs["mtriple"] == "aarch64-linux-gnu"
    for wrong, message in {
        "llvm, llvm": "given twice",
        "cuda, opencl, llvm": "one target of TVM",
        "nowhere, llvm": "neither a TVM target nor one of",
        "dnnl": "one target of TVM",
    }.items():
        with pytest.raises(tvmc.TVMCException, match=message):
            target.target_from_cli(wrong)
    with pytest.raises(tvmc.TVMCException, match="--target-c-mcpu but did not specify c"):
        target.target_from_cli("llvm", {"c": {"mcpu": "cortex-m55"}})
    for name in composite_target.get_codegen_names():
        assert callable(composite_target.get_codegen_by_target(name)["pass_pipeline"])
    with pytest.raises(tvmc.TVMCException, match="no such backend is left"):
        target.partition(None, {}, target.parse_target("ethos-u"))
    shapes = shape_parser.parse_shape_string("a/b:[1, 2] c.d:0:[-1,3]")
    assert shapes["a/b"] == [1, 2] and shapes["c.d:0"][1] == 3
    assert not isinstance(shapes["c.d:0"][0], int)


def test_the_old_name_is_the_same_module():
    with legacy.installed():
        from tvm.driver import tvmc as old

        assert old is tvmc and old.TVMCModel is tvmc.model.TVMCModel


def test_the_old_module_is_run_by_its_name():
    command = [sys.executable, "-m", "compiler", "run", "-m", "tvm.driver.tvmc", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0.27")


def test_a_file_that_is_not_there_is_said(tmp_path, capsys):
    assert main._main(["tune", "--target", "llvm", "-o", "log", str(tmp_path)]) == 1
    message = f"Error: Input file '{tmp_path}' doesn't exist, is a broken symbolic link, or a "
    assert capsys.readouterr().err == f"{message}directory.\n"


def test_relay_text_gets_weights_and_is_not_timed_unless_asked(tmp_path):
    text = tmp_path / "net.relay"
    text.write_text(
        """#[version = "0.0.5"]
        def @main(%x : Tensor[(1, 4), float32], %w : Tensor[(3, 4), int8]) {
            nn.dense(%x, cast(%w, dtype="float32"), units=3)
        }"""
    )
    loaded = tvmc.load(text, shape_dict={"x": (1, 4)})
    assert loaded.params["w"].dtype == "int8"
    result = tvmc.run(tvmc.compile(loaded, "llvm"), "cpu", inputs={"x": np.ones((1, 4), "float32")})
    expected = loaded.params["w"].astype("float32").sum(1)
    np.testing.assert_allclose(result.get_output("output_0")[0], expected)
    assert result.times == []


def test_passes_are_configured_added_and_left_out_by_name():
    with legacy.installed():
        found = pass_config.parse_configs(
            [
                *(
                    "tir.disable_assert=True",
                    "relay.FuseOps.max_depth=3",
                    "relay.ext.x.options=a=b",
                ),
                "tir.add_lower_pass=1,tir.transform.UnrollLoop",
                "tir.add_lower_pass=0,tir.transform.Simplify,2,tvm.tirx.transform.UnrollLoop",
            ]
        )
    added = found.pop("tir.add_lower_pass")
    assert found == {
        "tir.disable_assert": True,
        "relay.FuseOps.max_depth": 3,
        "relay.ext.x.options": "a=b",
    }
    assert [phase for phase, _ in added] == [1, 0, 2]
    assert added[0][1].info.name == added[2][1].info.name
    for wrong in ("tir.add_lower_pass=tir.transform.UnrollLoop,1", "tir.add_lower_pass=1", "a"):
        with pytest.raises(tvmc.TVMCException):
            pass_config.parse_configs([wrong])
    assert pass_list.parse_pass_list_str("FoldConstant,Winograd") == ["FoldConstant", "Winograd"]
    with pytest.raises(argparse.ArgumentTypeError, match="there is no pass Winograt; there are"):
        pass_list.parse_pass_list_str("FoldConstant,Winograt")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("relay.backend.use_auto_scheduler.missing=1", "'relay.*missing' is not defined"),
        ("tir.disable_asert=1", "'tir.disable_asert' is not defined"),
        ("tir.LoopPartition=1", "is a s_tir.transform.LoopPartitionConfig, which no text"),
    ],
)
def test_configuration_that_nobody_knows_or_no_text_gives_is_refused(config, message):
    with legacy.installed(), pytest.raises(tvmc.TVMCException, match=message):
        pass_config.parse_configs([config])


@pytest.mark.parametrize(
    "key", ["relay.backend.use_auto_scheduler", "tir.detect_global_barrier", "tir.usmp.enable"]
)
def test_configuration_that_means_nothing_today_is_still_taken(key):
    with legacy.installed():
        assert pass_config.parse_configs([f"{key}=true"]) == {key: True}


def test_inputs_of_a_graph_are_those_that_have_no_weights(model, tmp_path):
    loaded = tvmc.load(str(model), shape_dict={"x": (1, 3, 8, 8)})
    package = tvmc.compile(loaded, "llvm", package_path=str(tmp_path / "net.tar"))
    found = runner.get_input_info(package.graph, package.params)
    assert found == ({"x": [1, 3, 8, 8]}, {"x": "float32"})


def test_layouts_are_for_all_operators_or_one_for_each():
    data = relay.var("data", shape=(1, 4, 6, 6))
    pooled = relay.nn.max_pool2d(data, (2, 2))
    weight = relay.const(np.ones((3, 4, 1, 1), "float32"))
    mod = tvm.IRModule.from_expr(relay.Function([data], relay.nn.conv2d(pooled, weight)))
    made = transform.convert_graph_layout(mod, ["NHWC", "NCHW"], ["nn.conv2d", "nn.dense"])
    text = relay.astext(made)
    assert re.search(r"nn.conv2d\(.*data_layout=\"NHWC\"", text), text.partition("metadata")[0]
    for layouts, names in ((["NHWC", "NCHW"], None), (["NHWC", "NCHW"], ["nn.conv2d"])):
        with pytest.raises(tvmc.TVMCException, match="one for all operators"):
            transform.convert_graph_layout(mod, layouts, names)


@pytest.mark.parametrize(
    ("text", "found"),
    [("h:1", ("h", 1)), ("h", ("h", 9090)), ("", (None, None)), (None, (None, None))],
)
def test_trackers_have_a_port_of_their_own_or_the_usual_one(text, found):
    assert tracker.tracker_host_port_from_cli(text) == found


@pytest.mark.parametrize(
    ("expr", "numbers", "wants_list"),
    [
        ("all", [0, 1, 2, 3, 4, 5], False),
        ("list", [0, 1, 2, 3, 4, 5], True),
        ("5", [5], False),
        ("-2", [0, 1, 2], False),
        ("4-,1", [1, 4, 5], False),
        ("0,2-3,list", [0, 2, 3], True),
    ],
)
def test_tasks_are_chosen_by_number(expr, numbers, wants_list):
    assert tasks.filter_tasks(range(6), expr) == (numbers, wants_list)


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("6", "index out of range"),
        ("1-9", "Right-hand side"),
        ("-", "Missing lhs or rhs"),
        ("1-2-3", "Malformed range"),
        ("conv", "Malformed expression"),
    ],
)
def test_expressions_that_name_no_tasks_are_refused(expr, message):
    with pytest.raises(tvmc.TVMCException, match=message):
        tasks.filter_tasks(range(6), expr)


def test_tasks_are_listed_and_not_tuned(model, tmp_path, capsys):
    log = tmp_path / "log.json"
    words = ["tune", "--target", "llvm", "--tasks", "list", "-o", str(log), *SHAPES, str(model)]
    assert main._main(words) == 0
    assert re.search(r"  0\. Task\(.*len=\d+\)", capsys.readouterr().out)
    assert not log.exists()


def test_an_unknown_tuner_is_refused():
    with pytest.raises(tvmc.TVMCException, match="nobody"):
        autotuner.tune_tasks([], "log", {}, "nobody", 1)
    autotuner.tune_tasks([], "log", {}, "xgb_rank_binary_curve", 1)


def test_options_of_executors_are_flags():
    parser = argparse.ArgumentParser()
    registry.generate_registry_args(parser, Executor, "graph")
    words = ["--executor", "aot", "--executor-aot-unpacked-api", "1"]
    made = registry.reconstruct_registry_entity(parser.parse_args(words), Executor)
    assert made == Executor("aot", {"unpacked-api": True})
    made = registry.reconstruct_registry_entity(parser.parse_args([]), Executor)
    assert made == Executor("graph")
    for words, message in {
        ("--executor", "woof"): 'Executor "woof" is not defined',
        ("--executor-aot-link-params", "0"): "--executor-aot-link-params but did not specify aot",
    }.items():
        with pytest.raises(tvmc.TVMCException, match=message):
            registry.reconstruct_registry_entity(parser.parse_args(words), Executor)


def test_flags_of_a_file_become_words(tmp_path, monkeypatch):
    flags = {
        "targets": [{"kind": "llvm"}, {"kind": "c", "mcpu": "cortex-m55"}],
        "executor": {"kind": "aot", "unpacked-api": "1"},
        "pass-config": {"tir.disable_vectorize": "1"},
        "print-time": "True",
        "use-vm": False,
    }
    assert list(config_options.words_of(flags)) == [
        "--target-c-mcpu=cortex-m55",
        *("--target", "llvm, c", "--executor", "aot", "--executor-aot-unpacked-api", "1"),
        *("--pass-config", "tir.disable_vectorize=1", "--print-time"),
    ]
    (tmp_path / "mine.json").write_text(json.dumps(flags))
    monkeypatch.setattr(config_options, "CONFIGS_JSON_DIR", None)
    monkeypatch.setenv("TVM_CONFIGS_JSON_DIR", str(tmp_path))
    assert config_options.read_config("mine") == flags
    with pytest.raises(tvmc.TVMCException, match="yours"):
        config_options.read_config("yours")


def test_options_of_targets_are_flags():
    parser = argparse.ArgumentParser()
    target.generate_target_args(parser)
    words = ["--target", "llvm", "--target-llvm-mattr=+avx2,+fma", "--target-llvm-mcpu=haswell"]
    given = target.reconstruct_target_args(parser.parse_args(words))
    assert given == {"llvm": {"mattr": "+avx2,+fma", "mcpu": "haswell"}}
    chosen, _ = target.target_from_cli("llvm", given)
    assert chosen.attrs["mcpu"] == "haswell"


def test_formats_have_importers_and_missing_files_are_said(monkeypatch):
    assert isinstance(frontends.guess_frontend("a.onnx"), frontends.OnnxFrontend)
    assert isinstance(frontends.get_frontend_by_name("relay"), frontends.RelayFrontend)
    with pytest.raises(tvmc.TVMCException, match="Choose from"):
        frontends.get_frontend_by_name("nobody")
    with pytest.raises(FileNotFoundError, match=r"no/file\.onnx"):
        tvmc.load("no/file.onnx")
    monkeypatch.setattr(frontends.OnnxFrontend, "packages", ("no_such_package",))
    with pytest.raises(tvmc.TVMCImportError, match="no_such_package"):
        tvmc.load("no/file.onnx")


def test_operators_are_always_converted_where_they_are_named():
    data = relay.var("data", shape=(2, 4))
    body = relay.nn.softmax(relay.nn.dense(data, relay.const(np.ones((4, 4), "float32"))))
    mod = tvm.IRModule.from_expr(relay.Function([data], body))
    options = {"mixed_precision": True, "mixed_precision_ops": ["nn.softmax"]}
    long = transform.apply_graph_transforms(mod, {"mixed_precision": True})
    assert str(long["main"].body.ty.dtype) == "float32"
    short = transform.apply_graph_transforms(mod, options)
    assert str(short["main"].body.ty.dtype) == "float16"
    again = transform.apply_graph_transforms(mod, {"mixed_precision": True})
    assert str(again["main"].body.ty.dtype) == "float32"


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "link"])
def test_archives_with_more_than_plain_files_are_refused(tmp_path, name):
    package = tmp_path / "net.tar"
    with tarfile.open(package, "w") as tar:
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(member)
    with pytest.raises(tvmc.TVMCException, match=r"is no plain file|is outside of the archive"):
        tvmc.TVMCPackage(str(package))


def test_missing_tuning_records_are_ignored_with_a_warning(model, tmp_path, caplog):
    loaded = tvmc.load(str(model), shape_dict={"x": [1, 3, 8, 8]})
    package = tvmc.compile(loaded, "llvm", tuning_records=str(tmp_path / "no_such.log"))
    np.testing.assert_allclose(
        tvmc.run(package, "cpu", inputs={"x": DATA}).get_output("output_0"),
        expected(),
        rtol=1e-4,
        atol=1e-4,
    )
    assert "no_such.log do not exist" in caplog.text
