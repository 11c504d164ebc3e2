"""scripts/test runs the tests as a lesser processor would."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def run_script(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of scripts/test, where the set-up does nothing and each program prints what it sees."""
    scripts, programs = tmp_path / "scripts", tmp_path / "bin"
    for folder in scripts, programs:
        folder.mkdir(exist_ok=True)
    shutil.copy(ROOT / "scripts/test", scripts / "test")
    (scripts / "setup").write_text("")
    for name in ("ruff", "mypy", "python"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho {name} "$ATEN_CPU_CAPABILITY" "$CT2_FORCE_CPU_ISA" "$@"\n')
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    command = ["bash", str(scripts / "test"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_a_lesser_processor_can_be_asked_for_beside_all_else(tmp_path: Path) -> None:
    code, output = run_script(tmp_path, "--all", "--as", "avx2", "tests/search", "-x")
    assert code == 0
    assert output.splitlines()[-1] == "python avx2 AVX2 -m pytest -n auto --dist worksteal tests/search -x"
    code, output = run_script(tmp_path, "--as", "baseline")
    assert output.splitlines()[-1].startswith("python default GENERIC -m pytest")
    assert output.endswith("-m not slow\n")


def test_a_processor_that_is_not_known_is_refused_with_those_that_are(tmp_path: Path) -> None:
    code, output = run_script(tmp_path, "--as", "zen")
    assert (code, output) == (2, "scripts/test --as takes baseline, avx2 or avx512.\n")
