"""What a device has room for, by its architecture and the target's attributes."""

import pytest
from tvm.target import Target

from schedules.cuda import limits

KIB = 1024


def target(arch, **attributes):
    return Target({"kind": "cuda", "arch": arch, **attributes}, host="llvm")


# NVIDIA's "Technical Specifications per Compute Capability": shared memory of a block and of an SM,
# resident threads and blocks of an SM.
@pytest.mark.parametrize(
    ("arch", "block", "sm", "threads", "blocks"),
    [
        ("sm_70", 96, 96, 2048, 32),
        ("sm_75", 64, 64, 1024, 16),
        ("sm_80", 163, 164, 2048, 32),
        ("sm_86", 99, 100, 1536, 16),
        ("sm_89", 99, 100, 1536, 24),
        ("sm_90a", 227, 228, 2048, 32),
        ("sm_100f", 227, 228, 2048, 32),
        ("sm_120", 99, 100, 1536, 24),
    ],
)
def test_limits_are_those_of_nvidias_table(arch, block, sm, threads, blocks):
    found = limits.of(target(arch))
    assert (found.shared_per_block, found.shared_per_sm) == (block * KIB, sm * KIB)
    assert (found.threads_per_sm, found.blocks_per_sm) == (threads, blocks)
    assert (found.static_shared, found.registers_per_thread) == (48 * KIB, 255)


def test_an_architecture_that_is_not_in_the_table_has_what_every_device_has():
    for arch in ("sm_61", "sm_199"):
        assert limits.of(target(arch)).shared_per_block == 48 * KIB


def test_attributes_of_the_target_replace_the_tables_numbers():
    found = limits.of(
        target("sm_80", max_shared_memory_per_block=100 * KIB, max_threads_per_block=256)
    )
    assert (found.shared_per_block, found.static_shared) == (100 * KIB, 48 * KIB)
    assert found.threads_per_block == 256
    assert limits.of(target("sm_80", max_shared_memory_per_block=4096)).static_shared == 4096


def test_the_static_limit_in_tvms_tags_says_nothing_of_dynamic_shared_memory():
    assert limits.of(Target("nvidia/nvidia-a100")).shared_per_block == 163 * KIB


def test_the_letter_of_an_architecture_is_left_out_and_the_rest_of_the_target_stays():
    given = target("sm_90a", max_threads_per_block=512)
    found = limits.plain(given)
    assert found.attrs["arch"] == "sm_90"
    assert found.attrs["max_threads_per_block"] == 512
    assert found.host.kind.name == "llvm"
    assert limits.plain(target("sm_90")) is not None
    assert [limits.number(arch) for arch in ("sm_103", "sm_100f", "gfx90a")] == [103, 100, None]


def test_resident_blocks_are_those_of_nvidias_occupancy_calculator():
    h100, rtx = limits.of_arch("sm_90"), limits.of_arch("sm_86")
    assert h100.resident_blocks(threads=256, registers=32, shared=0) == 8  # threads
    assert h100.resident_blocks(threads=32, registers=16, shared=0) == 32  # blocks
    assert h100.resident_blocks(threads=512, registers=106, shared=0) == 1  # registers
    assert h100.resident_blocks(threads=128, registers=32, shared=73728) == 3  # shared memory
    assert rtx.resident_blocks(threads=128, registers=40, shared=49 * KIB) == 2  # 1 KiB reserved
    assert h100.resident_blocks(threads=1024, registers=255, shared=0) == 0
    assert rtx.resident_blocks(threads=128, registers=40, shared=100 * KIB) == 0
