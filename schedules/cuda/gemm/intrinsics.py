"""Instructions of tensor cores and asynchronous copies, as device functions that kernels call.

Every `mma.sync` of the table multiplies 16 rows of A by 8 rows of B, 32 bytes of k each, so that
the fragments are the same for all types: 4 registers of A, 2 of B, 4 sums. `ldmatrix` loads four
blocks of 8 rows and 16 bytes; its lane l gives the address of row l % 8 of block l / 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.backend.cuda.op import cuda_func_call

MMA_I, MMA_J, MMA_K_BYTES = 16, 8, 32
CHUNK_BYTES = 16
"""Bytes that `ldmatrix` reads of a row; also the largest asynchronous copy."""
FEWEST_BYTES = 4
"""Smallest asynchronous copy."""
TRANSPOSED_BITS = 16
"""Width of the elements that `ldmatrix` can transpose."""
WARP = 32
FIRST_ARCH = 80
"""From here on there are `cp.async`, and `mma.sync` of these shapes."""

WGMMA_I = 64
"""Rows that a warpgroup multiplies by one `wgmma`."""
WGMMA_BYTES, WGMMA_LINES = 128, 8
"""Bytes of a line of the widest swizzle, and lines after which it repeats."""

QUAD = 4
"""float32s of a vector."""

_HEAD = "__forceinline__ __device__ void"


@dataclass(frozen=True)
class Instruction:
    """An `mma.sync` for operands of one type."""

    dtype: str  # operand dtype
    sum_dtype: str
    k: int  # elements of k that it multiplies
    types: str  # PTX types of D, A, B and C

    @property
    def name(self) -> str:
        return f"baton_mma_{self.dtype}"

    @property
    def kind(self) -> str:
        """C's type of a sum."""
        return "int" if self.sum_dtype == "int32" else "float"

    def updated(self, count: int) -> str:
        """The first sums as operands of inline assembly that changes them."""
        letter = "r" if self.sum_dtype == "int32" else "f"
        return ", ".join(f'"+{letter}"(sums[{at}])' for at in range(count))

    @property
    def source(self) -> str:
        a = ", ".join(f'"r"(a[{at}])' for at in range(4))
        return (
            f"{_HEAD} {self.name}({self.kind}* sums, const unsigned* a, const unsigned* b) {{\n"
            f'  asm("mma.sync.aligned.m16n8k{self.k}.row.col.{self.types} "\n'
            '      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"\n'
            f'      : {self.updated(4)} : {a}, "r"(b[0]), "r"(b[1]));\n'
            "}\n"
        )


INSTRUCTIONS = {
    each.dtype: each
    for each in (
        Instruction("float16", "float32", 16, "f32.f16.f16.f32"),
        Instruction("bfloat16", "float32", 16, "f32.bf16.bf16.f32"),
        Instruction("float32", "float32", 8, "f32.tf32.tf32.f32"),
        Instruction("int8", "int32", 32, "s32.s8.s8.s32"),
        Instruction("uint8", "int32", 32, "s32.u8.u8.s32"),
    )
}


def pointer(buffer: Any, place: Any) -> Any:
    """Where an element of shared memory or of a thread's array is.

    TVM 0.27 takes memory whose elements only have their addresses taken for unused; `access_ptr`
    counts as a use of all of it. It says that memory is read, copies included: barriers are
    placed by hand.
    """
    return buffer.access_ptr("r", offset=place)


def mma(instruction: Instruction, sums: Any, a: Any, b: Any) -> Any:
    """sums += a * b; pointers to 4 sums, 4 registers and 2 registers."""
    return cuda_func_call(instruction.name, sums, a, b, source_code=instruction.source)


def wgmma(
    instruction: Instruction, columns: int, k: int, across: tuple[bool, ...], *pointers: Any
) -> Any:
    """Begin sums += a * b, 64 rows by `columns`; what was begun before is complete afterwards.

    `pointers`: to the sums of a thread, and to both operands in shared memory: `k` elements by
    64 rows or `columns`. `across`: for each operand, whether its lines are of 64 rows, not of k.
    """
    itemsize = MMA_K_BYTES // instruction.k
    lines = [WGMMA_BYTES if rows else k * itemsize for rows in across]
    # Descriptors count in chunks of 16 bytes: from line 0 to line 8, and from a block of 64 rows to
    # the next one. The two highest bits are the swizzle: 1 is that of 128 bytes, 2 that of 64.
    fields = [
        (WGMMA_BYTES // line) << 62
        | line * WGMMA_LINES // CHUNK_BYTES << 32
        | (k * line // CHUNK_BYTES if rows else 1) << 16
        for line, rows in zip(lines, across, strict=True)
    ]
    further = [instruction.k * WGMMA_BYTES if rows else MMA_K_BYTES for rows in across]
    signs = "" if instruction.kind == "int" else ", 1, 1"
    if itemsize == TRANSPOSED_BITS // 8:
        signs += "".join(f", {int(rows)}" for rows in across)
    count = columns // 2
    sums = ", ".join(f"%{at}" for at in range(count))
    descriptors: list[str] = []
    body = ""
    for step in range(k // instruction.k):
        a = count + len(descriptors)
        kinds = ".".join(instruction.types.split(".")[:3])
        body += (
            f'    "wgmma.mma_async.sync.aligned.m64n{columns}k{instruction.k}.{kinds} "\n'
            f'    "{{{sums}}}, %{a}, %{a + 1}, 1{signs};\\n"\n'
        )
        descriptors += [
            f'"l"({name} + {step * far // CHUNK_BYTES})'
            for name, far in zip("ab", further, strict=True)
        ]
    name = f"baton_wgmma_{instruction.dtype}_{columns}_{k}_{int(across[0])}{int(across[1])}"
    source = (
        # Swizzles repeat after 1024 bytes, and TVM 0.27 aligns dynamic shared memory to 64.
        f"extern __shared__ __align__({WGMMA_BYTES * WGMMA_LINES}) unsigned char "
        "buf_dyn_shmem_ptr[];\n"
        f"{_HEAD} {name}({instruction.kind}* sums, const void* at_a, const void* at_b) {{\n"
        f"  unsigned long long a = (__cvta_generic_to_shared(at_a) >> 4) | {fields[0]}ull;\n"
        f"  unsigned long long b = (__cvta_generic_to_shared(at_b) >> 4) | {fields[1]}ull;\n"
        f'  asm volatile("wgmma.fence.sync.aligned;\\n"\n{body}'
        '    "wgmma.commit_group.sync.aligned;\\n"\n    "wgmma.wait_group.sync.aligned 1;"\n'
        f"    : {instruction.updated(count)}\n"
        f'    : {", ".join(descriptors)} : "memory");\n'
        "}\n"
    )
    return cuda_func_call(name, *pointers, source_code=source)


def wait_wgmma(instruction: Instruction, count: int, sums: Any) -> Any:
    """Wait until the sums are complete."""
    name = f"baton_wait_wgmma_{instruction.sum_dtype}_{count}"
    source = (
        f"{_HEAD} {name}({instruction.kind}* sums) {{\n"
        f'  asm volatile("wgmma.wait_group.sync.aligned 0;"\n    : {instruction.updated(count)}'
        ' :: "memory");\n'
        "}\n"
    )
    return cuda_func_call(name, sums, source_code=source)


def fence_wgmma() -> Any:
    """Let `wgmma` see, after the next barrier, what this thread has written to shared memory."""
    fence = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
    source = f"{_HEAD} baton_fence_wgmma() {{ {fence} }}\n"
    return cuda_func_call("baton_fence_wgmma", source_code=source)


def ldmatrix(registers: Any, shared: Any, transposed: bool) -> Any:
    """Four blocks to four registers; each lane gives the address of one row."""
    name = "baton_ldmatrix" + ("_transposed" if transposed else "")
    operation = "ldmatrix.sync.aligned.m8n8.x4" + (".trans" if transposed else "")
    outputs = ", ".join(f'"=r"(to[{at}])' for at in range(4))
    source = (
        f"{_HEAD} {name}(unsigned* to, const void* from) {{\n"
        f'  asm volatile("{operation}.shared.b16 {{%0, %1, %2, %3}}, [%4];"\n'
        f"               : {outputs}\n"
        '               : "r"((unsigned)__cvta_generic_to_shared(from)) : "memory");\n'
        "}\n"
    )
    return cuda_func_call(name, registers, shared, source_code=source)


def round_tf32(registers: Any) -> Any:
    """Round the float32s in four registers to what tensor cores multiply of them."""
    rounded = "".join(
        f'  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(to[{at}]) : "f"(__uint_as_float(to[{at}])));\n'
        for at in range(4)
    )
    source = f"{_HEAD} baton_round_tf32(unsigned* to) {{\n{rounded}}}\n"
    return cuda_func_call("baton_round_tf32", registers, source_code=source)


def round_vector(shared: Any, lanes: int) -> Any:
    """Round 1, 2 or 4 float32s in shared memory, as `round_tf32`."""
    name, kind = f"baton_round_vector_{lanes}", f"uint{lanes}" if lanes > 1 else "unsigned"
    elements = [f"vector.{letter}" for letter in "xyzw"[:lanes]] if lanes > 1 else ["vector"]
    rounded = "".join(
        f'  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"({each}) : "f"(__uint_as_float({each})));\n'
        for each in elements
    )
    source = (
        f"{_HEAD} {name}(void* at) {{\n  {kind} vector = *({kind}*)at;\n{rounded}"
        f"  *({kind}*)at = vector;\n}}\n"
    )
    return cuda_func_call(name, shared, source_code=source)


def load_vector(registers: Any, shared: Any) -> Any:
    """Four float32s to registers."""
    source = (
        f"{_HEAD} baton_load_vector(float* to, const void* from) {{\n"
        "  float4 vector = *(const float4*)from;\n"
        "  to[0] = vector.x; to[1] = vector.y; to[2] = vector.z; to[3] = vector.w;\n"
        "}\n"
    )
    return cuda_func_call("baton_load_vector", registers, shared, source_code=source)


def outer_product(rows: int, columns: int, sums: Any, a: Any, b: Any) -> Any:
    """sums[n, m] += a[n] * b[m], in float32."""
    name = f"baton_outer_product_{rows}_{columns}"
    source = (
        f"{_HEAD} {name}(float* sums, const float* a, const float* b) {{\n"
        "#pragma unroll\n"
        f"  for (int n = 0; n < {rows}; ++n)\n"
        "#pragma unroll\n"
        f"    for (int m = 0; m < {columns}; ++m)\n"
        f"      sums[n * {columns} + m] = fmaf(a[n], b[m], sums[n * {columns} + m]);\n"
        "}\n"
    )
    return cuda_func_call(name, sums, a, b, source_code=source)


def store_column(shared: Any, sums: Any, pitch: int) -> Any:
    """Four float32s of a thread, each `pitch` after the previous one, to one vector."""
    name = f"baton_store_column_{pitch}"
    elements = ", ".join(f"from[{at * pitch}]" for at in range(QUAD))
    source = (
        f"{_HEAD} {name}(void* to, const float* from) {{\n"
        f"  *(float4*)to = make_float4({elements});\n"
        "}\n"
    )
    return cuda_func_call(name, shared, sums, source_code=source)


def barrier_of_warp() -> Any:
    """Wait for the other threads of the warp."""
    source = f"{_HEAD} baton_barrier_of_warp() {{ __syncwarp(); }}\n"
    return cuda_func_call("baton_barrier_of_warp", source_code=source)


def pack(instruction: Instruction, registers: Any, sums: Any) -> Any:
    """Two tiles of sums, eight of a thread, to four registers of a first operand."""
    name = f"baton_pack_{instruction.dtype}"
    kind = {"float16": "f16x2", "bfloat16": "bf16x2"}[instruction.dtype]
    pairs = "".join(
        f'  asm("cvt.rn.{kind}.f32 %0, %1, %2;" : "=r"(to[{at}])'
        f' : "f"(from[{2 * at + 1}]), "f"(from[{2 * at}]));\n'
        for at in range(4)
    )
    source = f"{_HEAD} {name}(unsigned* to, const float* from) {{\n{pairs}}}\n"
    return cuda_func_call(name, registers, sums, source_code=source)


def copy(size: int, shared: Any, memory: Any, is_there: Any) -> Any:
    """Start to copy 4, 8 or 16 bytes; zeros where the condition does not hold."""
    name, kind = f"baton_copy_{size}", "cg" if size == CHUNK_BYTES else "ca"
    source = (
        f"{_HEAD} {name}(void* to, const void* from, bool is_there) {{\n"
        f'  asm volatile("cp.async.{kind}.shared.global [%0], [%1], {size}, %2;"\n'
        '               :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from),\n'
        f'                  "r"(is_there ? {size} : 0) : "memory");\n'
        "}\n"
    )
    return cuda_func_call(name, shared, memory, is_there, source_code=source)


def store(shared: Any, value: Any) -> Any:
    """Store one element; TVM inserts no barrier after it."""
    source = (
        "template <typename T> __forceinline__ __device__ void baton_store(void* to, T value) {\n"
        "  *(T*)to = value;\n"
        "}\n"
    )
    return cuda_func_call("baton_store", shared, value, source_code=source)


def commit() -> Any:
    """End a group of copies."""
    source = f'{_HEAD} baton_commit() {{ asm volatile("cp.async.commit_group;" ::: "memory"); }}\n'
    return cuda_func_call("baton_commit", source_code=source)


def wait(pending: int) -> Any:
    """Wait until at most this number of groups of copies are in flight."""
    name = f"baton_wait_{pending}"
    text = f"cp.async.wait_group {pending};"
    source = f'{_HEAD} {name}() {{ asm volatile("{text}" ::: "memory"); }}\n'
    return cuda_func_call(name, source_code=source)
