"""What the operating system is asked, and that mt works where it knows less than Linux."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mt import system
from tests.processes import environment

# As on macOS: the functions are not there, and neither is any file below /proc or /sys.
WITHOUT_LINUX = """
import builtins, ctypes, io, os
del os.sched_getaffinity
plain_open, lookup = io.open, ctypes.CDLL.__getattr__
def open_elsewhere(file, *arguments, **options):
    if str(file).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "No such file or directory", str(file))
    return plain_open(file, *arguments, **options)
def look_up(library, name):
    if name in ("prctl", "mallopt"):
        raise AttributeError(name)
    return lookup(library, name)
builtins.open = io.open = open_elsewhere
ctypes.CDLL.__getattr__ = look_up
"""
TRAIN_TRANSLATE_AND_SERVE = """
import json, signal, socket, sys, threading, time, urllib.request
from mt import processes, system
from mt.__main__ import main
processes.ARE_LAUNCHED = True
def call(*arguments):
    sys.argv = ["mt", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (arguments, end.code)
def ask():
    text = json.dumps({"text": "the dog sees a house."}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/translate", text, {"Content-Type": "application/json"}
    )
    for _ in range(300):
        try:
            with urllib.request.urlopen(request) as response:
                answers.append(json.load(response)["results"])
                break
        except OSError:
            time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)
with socket.create_server(("127.0.0.1", 0)) as closed_again:
    port = closed_again.getsockname()[1]
answers = []
call("train", "--config", sys.argv[1], "--run", "run", "--set", "training.max_steps=1")
call("translate", "--run", "run", "the dog sees a house.")
threading.Thread(target=ask).start()
call("serve", "--run", "run", "--port", str(port))
assert answers
assert system.usable_cores() == os.cpu_count()
assert system.usable_memory() > 0
"""


def test_mt_trains_translates_and_serves_where_linux_is_not(tiny_config_file: Path, tmp_path: Path) -> None:
    kept = {
        name: value for name, value in environment().items() if name not in ("MT_ENGINE", "OMP_NUM_THREADS")
    }
    code = WITHOUT_LINUX + TRAIN_TRANSLATE_AND_SERVE
    command = [sys.executable, "-c", code, str(tiny_config_file)]
    done = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "fast engine is left" not in done.stderr
    assert next((tmp_path / "run" / "engine").iterdir()).is_dir()


GIB = 2**30


@pytest.mark.parametrize(
    ("groups", "files", "cores", "memory"),
    [
        ("0::/", "cpu.max=max 100000, memory.max=max", 8, 64),
        ("0::/", f"cpu.max=150000 100000, memory.max={2 * GIB}", 2, 2),
        # A group is within the limits of those around it, as the step of a job is within those of the job.
        ("0::/job/step", "job/cpu.max=400000 100000, job/step/cpu.max=max 100000", 4, 64),
        ("0::/job/step", f"memory.max=max, job/memory.max={3 * GIB}, job/step/memory.max={4 * GIB}", 8, 3),
        ("0::/a:b", f"a:b/memory.max={GIB}", 8, 1),
        # Version 1, in a container, where the group has the name that it has outside.
        ("2:cpuacct,cpu:/docker/c0ffee", "cpu/cpu.cfs_quota_us=50000, cpu/cpu.cfs_period_us=100000", 1, 64),
        ("4:memory:/docker/c0ffee", f"memory/memory.limit_in_bytes={GIB}", 8, 1),
        ("2:cpu:/", "cpu/cpu.cfs_quota_us=-1, cpu/cpu.cfs_period_us=100000", 8, 64),
        ("3:cpuset:/x", "cpu/x/cpu.cfs_quota_us=50000, cpu/x/cpu.cfs_period_us=100000", 8, 64),
        ("4:memory:/", "memory/memory.limit_in_bytes=9223372036854771712", 8, 64),
    ],
)
def test_a_container_has_its_own_cores_and_memory(
    groups: str, files: str, cores: int, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in files.split(", "):
        name, _, text = file.partition("=")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "own").write_text(f"1:name=systemd:/\n{groups}\n")
    monkeypatch.setattr(system, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(system, "CGROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 64 * GIB // 4096}.__getitem__)
    assert (system.usable_cores(), system.usable_memory()) == (cores, memory * GIB)
    monkeypatch.setattr(system, "OWN_CGROUPS", tmp_path / "none")
    assert (system.usable_cores(), system.usable_memory()) == (8, 64 * GIB)


def test_the_peak_of_this_process_is_in_bytes() -> None:
    # Torch alone takes some hundred megabytes.
    assert 50e6 < system.peak_memory() < 1e12
