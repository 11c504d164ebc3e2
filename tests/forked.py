"""Python programs that import mt, as forks of a process that has imported torch already, which takes seconds.

`run` and `Popen` are those of subprocess. What no fork can be like, they start as a fresh process: another
program, options of Python, or an environment that could change what is imported. Forks share their hash seed.
"""

import atexit
import functools
import gc
import importlib
import io
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import types
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from unittest import mock

ROOT = Path(__file__).parent.parent
# The last is what the first step of an optimizer imports, which takes as long as all the rest.
IMPORTED = (
    "mt.cli.app", "mt.training.run", "mt.inference.translator", "mt.evaluation.evaluate", "torch._dynamo",
)  # fmt: skip
CAN_FORK = hasattr(os, "pidfd_open")
# One thread, so that processes do not fight for the cores, and all sum in the same order.
OURS = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
AT_THE_START = os.environ | OURS
# Nothing reads these while it is imported, or, of OpenMP, for a single thread. Torch itself sets some.
LATER = {
    "COLUMNS", "GOMP_SPINCOUNT", "KMP_INIT_AT_FORK", "MT_CACHE", "MT_ENGINE", "PYTEST_CURRENT_TEST",
    "PYTHONIOENCODING", "TORCHINDUCTOR_CACHE_DIR", "XDG_STATE_HOME",
}  # fmt: skip


def environment(**more: str) -> dict[str, str]:
    """This process's environment, with one thread, this mt, and what is given."""
    return os.environ | OURS | more


class Popen(subprocess.Popen[Any]):
    """A process as `subprocess.Popen` starts it, though its parent may be the server."""

    stdin: IO[Any]
    stdout: IO[Any]
    stderr: IO[Any]
    _status: socket.socket | None = None
    """Gives the number of a fork, and how it has ended."""

    def _execute_child(self, *given: Any) -> None:
        words, _, prepare, _, passed, folder, environ, _, _, shell, *pipes = given[:16]
        command = [os.fsdecode(word) for word in words]
        program = command[1] if command[0] == sys.executable else "-"
        environ = os.environ if environ is None else environ
        different = {name for name, _ in environ.items() ^ AT_THE_START.items()} - LATER
        # The last are those of another user, mask, session or group of processes.
        is_odd = prepare or passed or shell or given[16:] != (True, None, None, None, -1, False, -1)
        if not CAN_FORK or is_odd or different or (program[0] == "-" and program not in ("-c", "-m")):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        streams = [number if pipe == -1 else pipe for number, pipe in enumerate((pipes[0], *pipes[3::2]))]
        request = json.dumps([command[1:], os.fsdecode(folder or Path.cwd()), dict(environ)])
        with theirs:
            socket.send_fds(_server(), [request.encode()], [*streams, theirs.fileno()])
        self.pid = int(self._status.recv(20))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._status is None:
            return super()._try_wait(flags)  # type: ignore[misc, no-any-return]
        try:
            found = self._status.recv(20, socket.MSG_DONTWAIT if flags else 0)
        except BlockingIOError:
            return 0, 0
        self._status.close()
        return self.pid, int(found)

    def _internal_poll(self, *dead: Any, **more: Any) -> int | None:
        if self._status is None:
            return super()._internal_poll(*dead, **more)  # type: ignore[misc, no-any-return]
        with suppress(subprocess.TimeoutExpired):
            self._wait(timeout=0)  # type: ignore[attr-defined]
        return self.returncode


def run(command: list[Any], **options: Any) -> "subprocess.CompletedProcess[Any]":
    """As `subprocess.run`."""
    with mock.patch.object(subprocess, "Popen", Popen):
        return subprocess.run(command, **options)


@functools.cache
def _server() -> socket.socket:
    """Where requests go; the server ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    number = theirs.detach()
    command = [sys.executable, __file__, str(number)]
    server = Popen(command, stdin=subprocess.DEVNULL, pass_fds=[number], env=AT_THE_START)
    os.close(number)
    atexit.register(server.wait)
    atexit.register(ours.close)
    return ours


def serve(requests: socket.socket) -> list[str]:
    """Fork for each request; a fork returns, with the command that it is to be."""
    forks: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([requests.fileno(), *forks], [], [])[0]:
            if ready in forks:
                process, status = forks.pop(ready)
                used, said = [ready, status], os.waitpid(process, 0)[1]
            else:
                request, used, *_ = socket.recv_fds(requests, 1 << 18, 4)
                if not request:
                    os._exit(0)
                # The only other thread is one of pyarrow's allocator, which knows of forks.
                said = os.fork()
                if not said:
                    others = [requests.detach(), *forks, *(status for _, status in forks.values())]
                    return begin(json.loads(request), used, others)
                status = used.pop()
                forks[os.pidfd_open(said)] = said, status
            with suppress(BrokenPipeError):
                os.write(status, str(said).encode())
            for each in used:
                os.close(each)


def begin(request: Any, streams: list[int], others: list[int]) -> list[str]:
    """Take a fork to where a fresh process begins; the command without the interpreter."""
    command, folder, environ = request
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(streams[number], number)
        old = getattr(sys, name)
        mode, size, by_line = "wb" if number else "rb", -1, number == 2 or os.isatty(number)
        if number and old.write_through:
            size, by_line = 0, False
        file = open(number, mode, size, closefd=False)  # noqa: SIM115
        encoding = environ.get("PYTHONIOENCODING", old.encoding)
        new = io.TextIOWrapper(file, encoding, old.errors, "\n", by_line, old.write_through)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    for each in streams + others:
        os.close(each)
    return list(command)


def play(command: list[str]) -> None:
    """Be the program that Python is given with these arguments."""
    how, sys.argv = command[0], command
    if how == "-m":
        sys.argv, sys.path[0] = command[1:], str(Path.cwd())
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv, sys.path[0] = [how, *command[2:]], ""
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(command[1], sys.modules["__main__"].__dict__)
    else:
        sys.path[0] = str(Path(how).parent)
        runpy.run_path(how, run_name="__main__")


def leave() -> None:
    """Leave out the very end of Python, which takes long to take apart what was imported."""
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    code: Any = "Python itself ends what has failed."
    # What is registered first is done last.
    atexit.register(leave)
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    # As in the tests themselves.
    os.fsync = os.fstat  # type: ignore[assignment]
    program = serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        play(program)
        code = 0
    except SystemExit as end:
        code = end.code or 0
        raise
