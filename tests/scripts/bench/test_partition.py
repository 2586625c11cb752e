"""The benchmark of the partitioner: one small size of each kind."""

from __future__ import annotations

import subprocess
import sys


def test_the_table_has_a_row_for_each_size_and_a_time_for_each_kind() -> None:
    command = [sys.executable, "-m", "scripts.bench.partition", "--nodes", "50", "200"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["nodes", "subgraphs", "regions", "symbol", "module"]
    assert [row.split()[0] for row in rows] == ["50", "200"]
    assert all(int(row.split()[1]) > 0 and row.count("(") == 3 for row in rows)
