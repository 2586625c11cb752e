"""The program that kills builds: nothing is half after a kill, and it sees what is."""

import subprocess
import sys

import numpy as np

from compiler.mxnet.symbol import save_params


def test_a_build_that_is_killed_leaves_nothing_half_and_nothing_behind():
    command = [sys.executable, "-m", "scripts.fuzz.kill_builds", "--kills", "2", "--seconds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "kill 2:" in done.stdout


def test_mixed_parameters_lost_rounds_and_drafts_are_seen(tmp_path):
    from scripts.fuzz import kill_builds as script

    save_params(tmp_path / "weights.params", {"w": np.arange(4, dtype="float32")})
    (tmp_path / "rounds.log").write_text(script.LINE % 1 + "\n{half\n{half\n")
    (tmp_path / ".baton-file-abcdefgh.tmp").touch()
    found = []
    script.look([tmp_path], [1, 2], 1, {"autotvm": ["trial"]}, lambda sent: found.extend(sent[0]))
    assert sum(part in line for part, line in zip(
        ("left behind", "library is gone", "several rounds", "damaged", "lost 1 rounds", "1 lost"),
        found,
    )) == 6, found  # fmt: skip
