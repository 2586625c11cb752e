"""TVM workarounds: one file each, which names the bug and the affected version.

Each workaround except `loop_guard` has a test that fails once TVM no longer needs it, which then
can be removed. LLVM's bug behind `loop_guard` does not show on every CPU.
"""
