"""Guards against faults of TVM: one file each, which names the fault and the version that has it.

Each but `loop_guard` has a test that fails as soon as TVM behaves without the guard, which then can
go; LLVM's fault is not met again on every CPU.
"""
