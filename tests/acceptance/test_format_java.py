"""A program in Java, written from docs/format.md alone, computes the values of all vectors."""

import shutil
import subprocess
from pathlib import Path

from tests.servers import unavailable

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "streamdedup/sample/vectors.jsonl"


def test_a_program_written_from_the_page_computes_every_value():
    if shutil.which("javac") is None:  # without it, java runs no source file
        unavailable(FileNotFoundError("javac: make tools installs it"))
    command = ["java", "-Dfile.encoding=UTF-8", "tests/format/Format.java", str(VECTORS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "200 vectors, 0 deviations"
