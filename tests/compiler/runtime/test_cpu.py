from __future__ import annotations

import subprocess
import sys

import pytest

from compiler.runtime import cpu

HASWELL = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) CPU: E5 v3
flags\t\t: fpu cx8 cmov mmx fxsr sse sse2 pni ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt avx f16c \
lahf_lm abm bmi1 avx2 bmi2
vmx flags\t: vnmi preemption_timer
bugs\t\t: cpu_meltdown

processor\t: 1
flags\t\t: fpu cx8 cmov mmx fxsr sse sse2 pni ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt avx f16c \
lahf_lm abm bmi1 avx2
"""
CORTEX = "processor\t: 0\nFeatures\t: fp asimd evtstrm aes crc32\nCPU architecture: 8\n"


@pytest.fixture
def haswell(monkeypatch):
    monkeypatch.setattr(cpu, "_cpuinfo_flags", lambda: cpu._flags_of(HASWELL))


@pytest.mark.usefixtures("haswell")
class TestHaswell:
    def test_features_carry_llvms_names(self):
        assert {"sse3", "sse4.2", "lzcnt", "bmi", "crc32", "avx2", "fma"} <= cpu.host_features()

    def test_a_feature_counts_only_if_every_processor_has_it(self):
        assert "bmi2" not in cpu.host_features()

    def test_missing_features_come_oldest_first(self):
        required = {"avx512f", "sse4.2", "sse4a", "avx512vl", "bmi2", "avx512fp16"}
        missing = cpu.missing_features(required)
        assert missing == ["sse4a", "bmi2", "avx512f", "avx512vl", "avx512fp16"]

    def test_tuning_hints_and_undetectable_features_are_never_missing(self):
        assert cpu.missing_features(["fast-gather", "pku", "shstk", "avxifma", "neon"]) == []


def test_the_cpuinfo_of_another_architecture_has_no_flags():
    assert cpu._flags_of(CORTEX) is None


def test_nothing_is_missing_where_nothing_can_be_detected(monkeypatch):
    monkeypatch.setattr(cpu, "_cpuinfo_flags", lambda: None)
    assert cpu.host_features() == frozenset()
    assert cpu.missing_features(["avx512f", "amx-tile"]) == []


@pytest.mark.parametrize("granted", [True, False])
def test_tiles_that_linux_does_not_give_are_missing(monkeypatch, granted):
    monkeypatch.setattr(cpu.Path, "read_text", lambda *_, **__: "flags : avx512f amx_tile amx_int8")
    monkeypatch.setattr(cpu, "_gets_tiles", lambda: granted)
    cpu._cpuinfo_flags.cache_clear()
    missing = cpu.missing_features(["avx512f", "amx-tile", "amx-int8"])
    cpu._cpuinfo_flags.cache_clear()
    assert missing == ([] if granted else ["amx-tile", "amx-int8"])


def test_features_are_known_without_a_compiler():
    code = (
        "import sys; from compiler.runtime.cpu import host_features, missing_features; "
        "missing_features(host_features()); assert 'tvm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
