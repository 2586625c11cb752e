from __future__ import annotations

import json
import logging
import re

import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.target import Target

from compiler import legacy
from compiler import target as targets
from compiler.errors import TargetError, UnavailableTargetError
from compiler.runtime import cpu as runtime_cpu
from compiler.runtime import cuda_runtime
from compiler.runtime.cpu import missing_features
from schedules.x86.machine.host import host_name

SYSTEM_CPU = host_name()
X86 = str(tvm.target.codegen.llvm_get_system_triple()).startswith("x86_64")
x86_only = pytest.mark.skipif(not X86, reason="names CPUs and features of x86")

# With a triple the CPU is valid on every machine that the tests run on.
SKYLAKE = "-mcpu=skylake-avx512 -mtriple=x86_64-linux-gnu"


def config(target: Target) -> dict:
    """All that a target says, in a form that compares by value."""

    def plain(value):
        if isinstance(value, tvm.ir.Map):
            return {str(name): plain(item) for name, item in value.items()}
        return [str(item) for item in value] if isinstance(value, tvm.ir.Array) else value

    return plain(target.export())


class TestForms:
    def test_a_command_line_gives_kind_model_cpu_and_core_count(self):
        target = targets.parse(f"llvm {SKYLAKE} -model=platinum-8124m -num-cores=18")
        assert target.kind.name == "llvm"
        assert dict(target.attrs) == {
            "mcpu": "skylake-avx512",
            "mtriple": "x86_64-linux-gnu",
            "model": "platinum-8124m",
            "num-cores": 18,
        }
        assert list(target.keys) == ["cpu"]

    def test_a_value_may_follow_its_option_as_a_word(self):
        spaced = targets.parse("llvm --mcpu generic -mtriple aarch64-linux-gnu --num-cores 4")
        joined = targets.parse("llvm -mcpu=generic -mtriple=aarch64-linux-gnu -num-cores=4")
        assert config(spaced) == config(joined)

    def test_an_option_without_value_is_true(self):
        assert targets.parse(f"llvm {SKYLAKE} -fast-math -opt-level=2").attrs["fast-math"] is True

    def test_a_switched_off_option_is_false(self):
        assert targets.parse(f"llvm -fast-math=0 {SKYLAKE}").attrs["fast-math"] is False

    def test_array_options_split_at_commas(self):
        target = targets.parse(f"llvm {SKYLAKE} -mattr=+avx512vnni,-avx512cd -libs=cblas,mkl")
        assert list(target.attrs["mattr"]) == ["+avx512vnni", "-avx512cd"]
        assert list(target.attrs["libs"]) == ["cblas", "mkl"]

    def test_quotes_and_backslashes_keep_spaces_together(self):
        target = targets.parse(rf"llvm {SKYLAKE} -model='an old\' box' -device=a\ b")
        assert target.attrs["model"] == "an old' box"
        assert target.attrs["device"] == "a b"

    @pytest.mark.parametrize(
        ("options", "keys"),
        [
            ("", ["cpu"]),
            ("-device=mine", ["mine", "cpu"]),
            ("-keys=cpu", ["cpu"]),
            ("-keys=x,cpu -device=mine", ["x", "cpu", "mine"]),
        ],
    )
    def test_given_keys_replace_the_default_ones_and_the_device_is_a_key(self, options, keys):
        target = targets.parse(f"llvm {SKYLAKE} {options}")
        assert [str(key) for key in target.keys] == keys

    def test_an_arm_triple_brings_its_key(self):
        target = targets.parse("llvm -mtriple=aarch64-linux-gnu")
        assert [str(key) for key in target.keys] == ["arm_cpu", "cpu"]

    def test_a_dict_its_json_and_its_command_line_are_one_target(self):
        given = {
            "kind": "llvm",
            "mcpu": "haswell",
            "mtriple": "x86_64-linux-gnu",
            "mattr": ["-fma"],
            "num-cores": 4,
        }
        from_dict = targets.parse(given)
        line = "llvm -mcpu=haswell -mtriple=x86_64-linux-gnu -mattr=-fma -num-cores=4"
        assert config(from_dict) == config(targets.parse(json.dumps(given)))
        assert config(from_dict) == config(targets.parse(line))

    def test_a_tag_stands_for_its_attributes_and_options_override_them(self):
        target = targets.parse("nvidia/nvidia-a100 -max_threads_per_block=512")
        assert target.attrs["arch"] == "sm_80"
        assert target.attrs["max_threads_per_block"] == 512
        same = targets.parse({"tag": "nvidia/nvidia-a100", "max_threads_per_block": 512})
        assert config(target) == config(same)

    def test_a_tag_keeps_its_own_host(self):
        host = targets.parse("raspberry-pi/4b-aarch64").host
        assert host.attrs["mtriple"] == "aarch64-linux-gnu"

    def test_without_a_target_the_active_one_counts(self):
        with Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}):
            assert targets.parse().attrs["mcpu"] == "cortex-a72"

    def test_without_any_target_the_error_says_what_to_pass(self):
        with pytest.raises(TargetError, match=r'pass one, for example "llvm"'):
            targets.parse()


class TestThisMachine:
    @pytest.mark.parametrize("form", ["llvm", {"kind": "llvm"}, '{"kind": "llvm"}', Target("llvm")])
    def test_plain_llvm_is_the_cpu_that_llvm_detects(self, form):
        target = targets.parse(form)
        assert target.attrs["mcpu"] == SYSTEM_CPU
        assert "mtriple" not in target.attrs
        assert "num-cores" not in target.attrs

    @x86_only
    def test_a_named_baseline_stays_what_it_says(self):
        target = targets.parse("llvm -mcpu=x86-64")
        assert target.attrs["mcpu"] == "x86-64"
        assert not targets.cpu_features(target) & {"avx", "avx2", "fma", "sse4.2"}

    def test_a_triple_alone_means_its_generic_cpu(self):
        assert targets.parse("llvm -mtriple=aarch64-linux-gnu").attrs["mcpu"] == "generic"

    @x86_only
    def test_instruction_sets_that_the_machine_hides_are_switched_off(self, monkeypatch):
        shown = frozenset({"fpu", "cmov", "cx8", "mmx", "fxsr", "sse", "sse2", "pni", "ssse3"})
        monkeypatch.setattr(runtime_cpu, "_cpuinfo_flags", lambda: shown)
        target = targets.parse("llvm -mattr=+gfni")
        features = targets.cpu_features(target)
        assert "ssse3" in features
        assert not features & {"avx2", "avx512f", "sse4.2", "fma"}
        assert list(target.attrs["mattr"])[-1] == "+gfni"

    def test_code_for_this_machine_lacks_nothing_here(self):
        assert missing_features(targets.cpu_features(targets.parse("llvm"))) == []


class TestHosts:
    def test_a_gpu_gets_this_machine_as_its_host(self):
        target = targets.parse("cuda -arch=sm_90 -model=v100")
        assert (target.attrs["arch"], target.attrs["model"]) == ("sm_90", "v100")
        assert target.host.attrs["mcpu"] == SYSTEM_CPU
        assert targets.is_gpu(target)
        assert not targets.is_gpu(target.host)

    def test_the_given_host_is_parsed_and_replaces_the_targets_own(self):
        own = {"kind": "cuda", "arch": "sm_90", "host": {"kind": "llvm"}}
        target = targets.parse(own, "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
        assert target.host.attrs["mcpu"] == "cortex-a72"

    def test_a_host_in_the_string_counts(self):
        target = targets.parse("cuda -arch=sm_80 -host='llvm -mtriple=aarch64-linux-gnu'")
        assert target.host.attrs["mtriple"] == "aarch64-linux-gnu"

    def test_a_cpu_has_a_host_only_if_one_is_given(self):
        assert targets.parse("llvm").host is None
        assert targets.parse("llvm", "llvm -mcpu=generic").host.attrs["mcpu"] == "generic"

    def test_old_scripts_get_the_generic_cpu_for_one_that_llvm_does_not_know(self, caplog):
        with legacy.installed():
            target = targets.parse("llvm -mcpu=no-such-chip -mtriple=x86_64-linux-gnu")
        assert target.attrs["mcpu"] == "generic"
        assert "-mcpu=no-such-chip is not a CPU" in caplog.text

    def test_a_gpu_as_host_is_refused(self):
        with pytest.raises(TargetError, match="host 'cuda' is not a CPU"):
            targets.parse("llvm", "cuda -arch=sm_90")

    @pytest.mark.parametrize(("version", "arch"), [("8.6", "sm_86"), ("9.0", "sm_90a")])
    def test_the_architecture_of_a_visible_gpu_is_taken(self, monkeypatch, version, arch):
        class Device:
            exist = True
            compute_version = version

        monkeypatch.setattr(tvm, "cuda", lambda index: Device())
        monkeypatch.setattr(cuda_runtime, "missing", lambda: None)
        assert targets.parse("cuda -model=3090").attrs["arch"] == arch

    def test_without_architecture_and_gpu_the_error_says_to_pass_one(self, monkeypatch):
        class Device:
            exist = False

        monkeypatch.setattr(tvm, "cuda", lambda index: Device())
        with pytest.raises(TargetError, match="add for example -arch=sm_90"):
            targets.parse("cuda -model=v100")


class TestOldAttributes:
    def test_dropped_attributes_are_logged_once(self, caplog):
        line = f"llvm -keys=cpu -link-params=0 -runtime=c -system-lib {SKYLAKE} -model=old"
        with caplog.at_level(logging.INFO, logger="baton.target"):
            target = targets.parse(line)
        assert set(target.attrs) == {"mcpu", "mtriple", "model"}
        [message] = [record.getMessage() for record in caplog.records]
        for dropped in ("-link-params", "-runtime", "-system-lib"):
            assert dropped in message

    def test_nothing_is_logged_when_nothing_is_dropped(self, caplog):
        with caplog.at_level(logging.INFO, logger="baton.target"):
            targets.parse("cuda -arch=sm_90 -libs=cudnn")
        assert not caplog.records

    @pytest.mark.parametrize(
        "name",
        ["link-params", "runtime", "executor", "system-lib", "interface-api", "unpacked-api"],
    )
    def test_each_gone_attribute_is_accepted_in_strings_and_dicts(self, name):
        assert name not in targets.parse(f"llvm -{name}=1").attrs
        assert name not in targets.parse({"kind": "llvm", name: 1}).attrs

    def test_the_old_name_of_the_triple_is_understood(self, caplog):
        with caplog.at_level(logging.INFO, logger="baton.target"):
            target = targets.parse("llvm -device=arm_cpu -target=aarch64-linux-gnu")
        assert target.attrs["mtriple"] == "aarch64-linux-gnu"
        assert "-target is read as -mtriple" in caplog.text

    @pytest.mark.parametrize(
        "line",
        [
            "llvm -keys=cpu -link-params=0 -mtriple=x86_64-linux-gnu -mcpu=core-avx2",
            "llvm -device=arm_cpu -model=bcm2837 -mtriple=armv7l-linux-gnueabihf -mattr=+neon",
            "llvm -device=arm_cpu -model=pynq -mtriple=armv7a-linux-eabi -mattr=+neon",
            "llvm -device=arm_cpu -model=kirin970 -mtriple=arm64-linux-android -mattr=+neon",
            "llvm -keys=cpu -libs=cblas",
            "llvm -device=tracing",
            "cuda -keys=cuda,gpu -arch=sm_80 -max_num_threads=1024 "
            "-max_shared_memory_per_block=49152 -max_threads_per_block=1024 -thread_warp_size=32",
            "opencl -device=mali",
            "hexagon -mcpu=hexagonv68",
        ],
    )
    def test_target_strings_of_published_logs_are_read(self, line):
        assert targets.parse(line).kind.name == line.split()[0]


class TestBadInput:
    @pytest.mark.parametrize(
        ("given", "named"),
        [
            ("", "the target string is empty"),
            ("   ", "the target string is empty"),
            ("-mcpu=generic", "begins with an option"),
            ("quantum -mcpu=x", "kind 'quantum' is unknown"),
            ("lvm", "kind 'lvm' is unknown; did you mean llvm"),
            ("nvidia/nvidia-b9000", "tag 'nvidia/nvidia-b9000'"),
            ("composite", "composite"),
            ("llvm mcpu=generic", "'mcpu=generic' in target .* is not an option"),
            ("llvm -num-cores=1 2", "'2' in target .* is not an option"),
            ("llvm -bogus=1", "no attribute -bogus"),
            ("llvm -mcpus=generic", "no attribute -mcpus; did you mean mcpu"),
            ("llvm -kind=cuda", "no attribute -kind"),
            ("cuda -arch=sm_90 -mattr=+x", "'cuda' has no attribute -mattr"),
            ("llvm -num-cores=2 -num-cores=2", "-num-cores is given twice"),
            ("llvm -mtriple=x86_64 -target=x86_64", "-target is the old name of -mtriple"),
            ("llvm -num-cores=two", "-num-cores .* is a number .*, not 'two'"),
            ("llvm -num-cores=0", "-num-cores=0"),
            ("llvm -num-cores=-1", "-num-cores"),
            ("llvm -num-cores=" + "9" * 30, "-num-cores"),
            ("llvm -fast-math=perhaps", "-fast-math .* 1 or 0"),
            ("llvm -opt-level=4", "-opt-level=4 is none of 0, 1, 2, 3"),
            ("llvm -jit=tracing", "-jit=tracing is none of mcjit, orcjit"),
            ("llvm -mfloat-abi=firm", "-mfloat-abi=firm is none of soft, hard"),
            ("llvm -cl-opt=unroll", "'unroll' is not an LLVM option"),
            ("llvm -=3", "has no name"),
            ("llvm --", "has no name"),
            ("llvm -model='open", "never closed"),
            ("llvm -model=x\\", "backslash"),
            ("llvm -mcpu=no-such-chip", "-mcpu=no-such-chip"),
            ("llvm -mcpu=", "-mcpu= is not a CPU"),
            ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx51", "skylake-avx512"),
            ("llvm -mtriple=aarch64-linux-gnu -mcpu=skylake", "-mcpu=skylake .*aarch64"),
            ("llvm -mtriple=x86_64-linux-gnu -mcpu=i386", "-mcpu=i386 lacks 64bit"),
            ("llvm -mtriple=x86_64-linux-gnu -mattr=-sse2", "lacks sse2"),
            ("llvm -mtriple=x86_64-linux-gnu -mattr=avx2", r"no sign; write \+avx2"),
            ("llvm -mtriple=x86_64-linux-gnu -mattr=+avx3", r"\+avx3 names no CPU feature"),
            ("llvm -mtriple=x86_64-linux-gnu -mattr=+", "no sign"),
            ("cuda -arch=sm_1x", "-arch=sm_1x"),
            ("cuda -arch=90", "-arch=90"),
            ("nvptx -mcpu=gfx900", "-mcpu=gfx900"),
            ("rocm -mcpu=gfx1", "-mcpu=gfx1 is not a CPU"),
            ("hexagon -mcpu=v68", "-mcpu=v68 is not a CPU"),
            ("{", "begins like JSON"),
            ('{"kind": "llvm", "kind": "c"}', "'kind' is given twice"),
            ('{"kind": {}}', "is unknown"),
            ({}, "names no kind"),
            ({"kind": "llvm", "bogus": 1}, "no attribute -bogus"),
            ({"kind": "llvm", "num-cores": "2"}, "not '2'"),
            ({"kind": "llvm", "num-cores": True}, "not True"),
            ({"kind": "llvm", "mattr": "+avx2"}, "list of strings"),
            ({"kind": "llvm", "fast-math": "yes"}, "1 or 0"),
            ({"kind": "llvm", "mcpu": 3}, "-mcpu .* is a string, not 3"),
            ({"kind": "cuda", "tag": "nvidia/nvidia-a100", "arch": "x"}, "-arch=x"),
            ({"kind": "llvm", "tag": "nvidia/nvidia-a100"}, "is of kind 'cuda'"),
            ({"kind": "cuda", "arch": "sm_90", "host": 3}, "not int"),
            (["llvm", "cuda"], "not list"),
            (7, "not int"),
            (Target({"kind": "llvm", "mcpu": "no-such-chip"}), "-mcpu=no-such-chip"),
        ],
    )
    def test_bad_targets_are_refused_by_name(self, given, named):
        with pytest.raises(TargetError, match=named):
            targets.parse(given)

    def test_a_bad_host_is_refused_by_name(self):
        with pytest.raises(TargetError, match="-mcpu=no-such-chip"):
            targets.parse("cuda -arch=sm_90", "llvm -mcpu=no-such-chip")

    @pytest.mark.parametrize("kind", ["stackvm", "hybrid", "aocl", "sdaccel", "cutlass"])
    def test_kinds_of_older_releases_are_said_to_be_gone(self, kind):
        with pytest.raises(UnavailableTargetError, match=f"'{kind}' belongs to older TVM"):
            targets.parse(kind)

    @pytest.mark.parametrize(
        "triple", ["foo-bar", "x86_64foo-linux-gnu", "armvfoo", "", "x86_64-\n"]
    )
    def test_triples_that_would_crash_llvm_are_refused(self, triple):
        with pytest.raises(UnavailableTargetError, match="-mtriple="):
            targets.parse({"kind": "llvm", "mtriple": triple})

    def test_refusing_a_cpu_prints_nothing(self, capfd):
        with pytest.raises(TargetError):
            targets.parse("llvm -mcpu=no-such-chip")
        assert capfd.readouterr() == ("", "")


class TestBuildable:
    def test_this_machine_can_be_built_for(self):
        targets.check_buildable(targets.parse("llvm"))

    @pytest.mark.parametrize("line", ["metal", "vulkan", "hexagon", "opencl"])
    def test_a_device_without_code_generator_or_runtime_is_unavailable(self, line):
        with pytest.raises(UnavailableTargetError, match=f"'{line}'"):
            targets.check_buildable(targets.parse(line))

    def test_cuda_without_its_compiler_is_unavailable(self, monkeypatch, tmp_path):
        for name in ("CUDA_PATH", "CUDA_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(targets.nvcc.cuda_files, "DEFAULT_HOME", str(tmp_path))
        with pytest.raises(UnavailableTargetError, match=r"cuda .*-arch=sm_90.*need nvcc"):
            targets.check_buildable(targets.parse("cuda -arch=sm_90"))

    def test_c_code_without_a_compiler_is_unavailable(self, monkeypatch):
        monkeypatch.setattr(tvm.support.cc, "get_cc", lambda: None)
        with pytest.raises(UnavailableTargetError, match="no C compiler"):
            targets.check_buildable(targets.parse("c"))


class TestFeatures:
    def test_a_cpu_brings_its_instruction_sets_without_tuning_hints(self):
        features = targets.cpu_features(targets.parse(f"llvm {SKYLAKE}"))
        assert {"sse4.2", "avx2", "fma", "avx512f", "avx512vl"} <= features
        assert not {"avx512vnni", "amx-tile"} & features
        assert not {name for name in features if name.startswith(("fast-", "slow-", "prefer-"))}

    def test_mattr_adds_and_removes_with_what_depends_on_it(self):
        features = targets.cpu_features(
            targets.parse("llvm -mtriple=x86_64 -mcpu=haswell -mattr=+avx512f,-f16c,-sse4.2")
        )
        assert "sse4.1" in features
        assert not {"avx", "avx2", "avx512f", "sse4.2"} & features

    def test_features_that_no_cpu_has_by_default_can_be_asked_for(self):
        target = targets.parse("llvm -mtriple=x86_64 -mcpu=haswell -mattr=+retpoline")
        assert "retpoline" in targets.cpu_features(target)

    def test_a_gpus_cpu_code_is_its_hosts(self):
        host = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"
        target = targets.parse("cuda -arch=sm_90", host)
        assert targets.cpu_features(target) == targets.cpu_features(targets.parse(host))

    def test_c_code_uses_no_features_of_its_own(self):
        assert targets.cpu_features(targets.parse("c")) == frozenset()

    def test_a_bare_gpu_has_no_cpu_code(self):
        with pytest.raises(TargetError, match="neither CPU code nor a host"):
            targets.cpu_features(Target({"kind": "cuda", "arch": "sm_90"}))


class TestCommandLine:
    def test_keys_come_first_and_attributes_follow_by_name(self):
        line = "llvm -num-cores=2 -model=m -mcpu=haswell -mtriple=x86_64 -device=arm_cpu"
        assert targets.to_cli(targets.parse(line)) == (
            "llvm -keys=arm_cpu,cpu -device=arm_cpu -mcpu=haswell -model=m -mtriple=x86_64 "
            "-num-cores=2"
        )

    # TVM's own strings are UTF-8.
    words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    llvm = st.fixed_dictionaries(
        {"kind": st.just("llvm")},
        optional={
            "mcpu": st.sampled_from(
                ["generic", "x86-64-v3", "haswell", "znver4", "sapphirerapids"]
            ),
            "mattr": st.lists(
                st.sampled_from(["+avx2", "-fma", "+avx512f", "+retpoline", "-sse4.2"]), max_size=3
            ),
            "keys": st.lists(words, max_size=3),
            "device": words,
            "model": words,
            "libs": st.lists(words, max_size=3),
            "num-cores": st.integers(1, 2**40),
            "opt-level": st.integers(0, 3),
            "fast-math": st.booleans(),
            "fast-math-nnan": st.booleans(),
            "mfloat-abi": st.sampled_from(["soft", "hard"]),
            "jit": st.sampled_from(["mcjit", "orcjit"]),
            "vector-width": st.sampled_from([128, 256, 512]),
        },
    ).map(lambda given: {**given, "mtriple": "x86_64-linux-gnu"})
    cuda = st.fixed_dictionaries(
        {"kind": st.just("cuda"), "arch": st.sampled_from(["sm_75", "sm_90a", "sm_120"])},
        optional={
            "keys": st.lists(words, max_size=3),
            "device": words,
            "model": words,
            "libs": st.lists(words, max_size=3),
            "max_num_threads": st.integers(1, 4096),
            "thread_warp_size": st.integers(1, 64),
        },
    )

    @settings(deadline=None)
    @given(st.one_of(llvm, cuda))
    def test_the_command_line_of_a_target_reads_as_the_same_target(self, given):
        target = targets.parse(given)
        line = targets.to_cli(target)
        assert config(targets.parse(line)) == config(target)
        assert targets.to_cli(targets.parse(line)) == line

    @settings(deadline=None)
    @given(st.one_of(llvm, cuda))
    def test_a_parsed_target_parses_as_itself(self, given):
        target = targets.parse(given)
        assert config(targets.parse(target)) == config(target)
        assert config(targets.parse(str(target))) == config(target)

    @settings(deadline=None)
    @given(st.text(st.sampled_from("lvm -=,'\\ \n3")))
    def test_no_string_does_worse_than_a_target_error(self, text):
        try:
            target = targets.parse("llvm " + text)
        except TargetError:
            return
        assert re.match("llvm -keys=", targets.to_cli(target))
