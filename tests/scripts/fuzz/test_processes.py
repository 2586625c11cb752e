"""A few rounds of replaced libraries, forks and callbacks."""

import subprocess
import sys


def test_twelve_rounds_end_with_the_numbers_of_one_library():
    command = [sys.executable, "-m", "scripts.fuzz.processes", "--rounds", "12", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 rounds" in done.stdout
