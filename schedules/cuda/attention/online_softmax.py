"""The softmax of attention's rows, of which keys arrive tile by tile, as device functions.

A row's numbers so far are its highest score, the sum of exp(score - highest), and the products of
that with the values. Where a new tile has a higher score, sum and products are multiplied by what
the difference makes of exp. exp is 2 to a power, so that one multiply-add gives the power.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.backend.cuda.op import cuda_func_call

_HEAD = "__forceinline__ __device__ void"
_LOG2_E = "1.44269504088896341f"


@dataclass(frozen=True)
class Rows:
    """How the sums of a thread lie in rows."""

    count: int  # rows of a thread
    sums: int  # sums of all rows
    # Neighboring sums of one row; the same number after them are of the next row, cyclically
    each: int
    lanes: int  # threads of a warp that share a row; they are neighbors

    @property
    def _name(self) -> str:
        return f"{self.count}_{self.sums}_{self.each}_{self.lanes}"

    @property
    def _row(self) -> str:
        """Of sum n, in C."""
        return f"n / {self.each} % {self.count}"

    def _over_lanes(self, value: str, combined: str) -> str:
        """A loop that combines a value of all threads of a row with `other`."""
        return (
            "#pragma unroll\n"
            f"    for (int distance = 1; distance < {self.lanes}; distance *= 2) {{\n"
            f"      float other = __shfl_xor_sync(0xffffffffu, {value}, distance);\n"
            f"      {value} = {combined};\n"
            "    }\n"
        )

    def step(self, scores: Any, highest: Any, totals: Any, factors: Any) -> Any:
        """Scores become weights; `factors` what the products so far are to be multiplied by.

        `highest` and `totals` have an element for each row; a total is that of the thread alone.
        """
        name = f"baton_softmax_step_{self._name}"
        source = (
            f"{_HEAD} {name}(float* scores, float* highest, float* totals, float* factors) {{\n"
            f"  float powers[{self.count}];\n"
            "#pragma unroll\n"
            f"  for (int r = 0; r < {self.count}; ++r) powers[r] = highest[r];\n"
            "#pragma unroll\n"
            f"  for (int n = 0; n < {self.sums}; ++n)\n"
            f"    highest[{self._row}] = fmaxf(highest[{self._row}], scores[n]);\n"
            "#pragma unroll\n"
            f"  for (int r = 0; r < {self.count}; ++r) {{\n"
            f"{self._over_lanes('highest[r]', 'fmaxf(highest[r], other)')}"
            # Without any key so far, -infinity minus itself is NaN.
            f"    float power = highest[r] == -INFINITY ? 0.0f : highest[r] * {_LOG2_E};\n"
            f"    factors[r] = exp2f(fmaf(powers[r], {_LOG2_E}, -power));\n"
            "    totals[r] *= factors[r];\n"
            "    powers[r] = power;\n"
            "  }\n"
            "#pragma unroll\n"
            f"  for (int n = 0; n < {self.sums}; ++n) {{\n"
            f"    scores[n] = exp2f(fmaf(scores[n], {_LOG2_E}, -powers[{self._row}]));\n"
            f"    totals[{self._row}] += scores[n];\n"
            "  }\n"
            "}\n"
        )
        return cuda_func_call(name, scores, highest, totals, factors, source_code=source)

    def scale(self, sums: Any, factors: Any) -> Any:
        """Multiply each row by its factor."""
        name = f"baton_scale_rows_{self._name}"
        source = (
            f"{_HEAD} {name}(float* sums, const float* factors) {{\n"
            "#pragma unroll\n"
            f"  for (int n = 0; n < {self.sums}; ++n) sums[n] *= factors[{self._row}];\n"
            "}\n"
        )
        return cuda_func_call(name, sums, factors, source_code=source)

    def divide(self, sums: Any, totals: Any, nan_is_zero: bool) -> Any:
        """Divide each row by the total of all its threads; without one, a row is NaN, or 0."""
        name = f"baton_divide_rows_{self._name}{'_or_zero' if nan_is_zero else ''}"
        quotient = f"sums[n] * totals[{self._row}]"
        if nan_is_zero:
            quotient = f"totals[{self._row}] < INFINITY ? {quotient} : 0.0f"
        source = (
            f"{_HEAD} {name}(float* sums, float* totals) {{\n"
            "#pragma unroll\n"
            f"  for (int r = 0; r < {self.count}; ++r) {{\n"
            f"{self._over_lanes('totals[r]', 'totals[r] + other')}"
            "    totals[r] = 1.0f / totals[r];\n"
            "  }\n"
            "#pragma unroll\n"
            f"  for (int n = 0; n < {self.sums}; ++n) sums[n] = {quotient};\n"
            "}\n"
        )
        return cuda_func_call(name, sums, totals, source_code=source)
