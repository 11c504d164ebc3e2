"""Serve a run, load it with concurrent clients, hostile ones too, and compare with what is promised.

    scripts/load --run RUN --file FILE [--clients 32] [--seconds 60] [--flood 10000]
        [--engine NAME] [--precision NAME]

Each client sends lines of FILE, one a request, the next when the answer is there. The goals are for a small
model, two processor cores that service and clients share, and sentences of 10 to 15 words. Exit code 0 if all
are met, else 1.
"""

import argparse
import json
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from mt.inference.translator import Translator

SECONDS = 120
"""After which a client gives up. The service answers, or refuses, within 30."""
NUM_LINES = 200
TEXTS_OF_A_FLOOD = 20
HEAD = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"

Lines = Sequence[tuple[str, str]]
"""Lines with their translations."""


class Goal(NamedTuple):
    """What is promised, what was seen, and whether that keeps the promise."""

    promise: str
    seen: str
    is_met: bool


class ServiceProcess(NamedTuple):
    """`mt serve` in a process of its own."""

    process: "subprocess.Popen[bytes]"
    port: int

    def memory_mb(self) -> float:
        """What it holds in memory now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def is_well(self) -> bool:
        """Whether it translates, at once or a moment later, when it has seen that others are gone."""
        for _ in range(100):
            with suppress(OSError), closing(Client(self.port)) as client:
                if client.translate("a")[0] == 200:
                    return True
            time.sleep(0.1)
        return False


@contextmanager
def serving(run: str, precision: str, engine: str) -> Iterator[ServiceProcess]:
    command = [sys.executable, "-m", "mt", "serve", "--run", run, "--port", "0", "--precision", precision]
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen([*command, "--engine", engine], stderr=log)
        try:
            while "serving at" not in (text := Path(log.name).read_text()):
                if process.poll() is not None:
                    sys.exit(text)
                time.sleep(0.1)
            [line] = [line for line in text.splitlines() if "serving at" in line]
            yield ServiceProcess(process, int(line.split(";")[0].rpartition(":")[2]))
        finally:
            process.kill()
            process.wait()


class Client:
    """A connection that is kept open; `http.client` would take several times its processor time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self._stream = self._socket.makefile("rb")

    def translate(self, *texts: str) -> tuple[int, Any]:
        """Send texts, and wait for the status and the JSON of the answer."""
        self.send(json.dumps({"texts": texts}).encode())
        return self.receive()

    def send(self, body: bytes, length: int | None = None) -> None:
        """Send a request whose body has this length, or will have."""
        self._socket.sendall(b"%sContent-Length: %d\r\n\r\n%s" % (HEAD, length or len(body), body))

    def send_more(self, body: bytes) -> None:
        self._socket.sendall(body)

    def receive(self) -> tuple[int, Any]:
        """The status and the JSON of the next answer."""
        status = self._stream.readline().split()
        if len(status) < 2:
            raise ConnectionError("the connection ended")
        length = 0
        while (line := self._stream.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        body = self._stream.read(length)
        # A refusal by the server itself is plain text.
        return int(status[1]), json.loads(body) if body.startswith(b"{") else None

    def status(self) -> str:
        """The status of the next answer, or the error in its place."""
        try:
            return str(self.receive()[0])
        except (OSError, ValueError) as error:
            return type(error).__name__

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


class Seen:
    """What clients have seen."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.mistakes: Counter[str] = Counter()

    def ask(self, client: Client, line: str, expected: str) -> None:
        started = time.perf_counter()
        status, answer = client.translate(line)
        self.seconds.append(time.perf_counter() - started)
        if status != 200:
            self.mistakes[f"status {status}"] += 1
        elif answer["results"][0]["source"] != line:
            self.mistakes["misplaced"] += 1
        elif answer["results"][0]["translations"][0]["text"] != expected:
            self.mistakes["different"] += 1

    def highest_ms(self, share: float) -> float:
        return 1000 * sorted(self.seconds)[int(share * (len(self.seconds) - 1))]


def alone(translator: Translator, sources: Sequence[str], port: int) -> tuple[Lines, Goal]:
    """Translate line by line with `Translator`, and each line also by the idle service."""
    lines, own, seen = [], [], Seen()
    translator.translate(sources[:10])
    with closing(Client(port)) as client:
        for source in sources:
            started = time.perf_counter()
            [translation] = translator.translate([source])
            own.append(time.perf_counter() - started)
            lines.append((source, translation))
            seen.ask(client, source, translation)
    ours, theirs = 1000 * statistics.median(own), seen.highest_ms(0.5)
    text = f"{theirs / ours:.2f} times: median {theirs:.1f} ms, {ours:.1f} ms"
    return lines, Goal("alone, at most 1.5 times Translator", text, theirs <= 1.5 * ours)


def together(port: int, lines: Lines, num_clients: int, seconds: float) -> Seen:
    """Let clients send lines for some seconds, each beginning at another one."""
    seen = Seen()
    stop_at = time.perf_counter() + seconds

    def work(number: int) -> None:
        try:
            with closing(Client(port)) as client:
                for line, expected in islice(cycle(lines), number * len(lines) // num_clients, None):
                    if time.perf_counter() > stop_at:
                        return
                    seen.ask(client, line, expected)
        except OSError as error:
            seen.mistakes[type(error).__name__] += 1

    threads = [threading.Thread(target=work, args=(each,)) for each in range(num_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def load(service: ServiceProcess, lines: Lines, num_clients: int, seconds: float) -> Iterator[Goal]:
    """Load the service with one client, and then with all."""
    one = len(together(service.port, lines, 1, min(10, seconds)).seconds) / min(10, seconds)
    memory: list[float] = []
    timer = threading.Timer(5, lambda: memory.append(service.memory_mb()))
    timer.start()
    seen = together(service.port, lines, num_clients, seconds)
    timer.join()
    memory.append(service.memory_mb())
    speed = len(seen.seconds) / seconds
    latencies = f"median {seen.highest_ms(0.5):.0f} ms, 99 % within {seen.highest_ms(0.99):.0f} ms"
    yield Goal("at least 120 sentences/s", f"{speed:.1f} sentences/s, {latencies}", speed >= 120)
    text = f"{speed / one:.2f} times {one:.1f} sentences/s"
    yield Goal("at least 3 times one client", text, speed >= 3 * one)
    text = f"{len(seen.seconds):,} answers, {dict(seen.mistakes) or 'no mistakes'}"
    yield Goal("each answer that of the text alone", text, not seen.mistakes)
    text = f"{memory[0]:.0f} MB after 5 s, {memory[1]:.0f} MB after {seconds:.0f} s"
    yield Goal("memory flat", text, memory[1] < 1.05 * memory[0])


def flood(service: ServiceProcess, lines: Lines, number: int) -> Goal:
    """Send requests over as many connections at once, before any answer is read."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    number = min(number, hard - 100)
    body = json.dumps({"texts": [line for line, _ in lines[:TEXTS_OF_A_FLOOD]]}).encode()
    clients: list[Client] = []
    try:
        for _ in range(number):
            clients.append(Client(service.port))
            clients[-1].send(body)
        statuses = Counter(client.status() for client in clients)
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return Goal(
        f"{number:,} requests at once are answered or refused",
        ", ".join(f"{count:,} x {status}" for status, count in sorted(statuses.items())),
        set(statuses) <= {"200", "429", "503"} and service.is_well(),
    )


def hostile(service: ServiceProcess) -> Iterator[Goal]:
    """Bodies that are no text, or too large."""
    with closing(Client(service.port)) as client:
        client.send(b'{"text": "\xff\xfe"}')
        status = client.status()
    yield Goal("a text that is not UTF-8 is refused", status, status == "400")
    before = service.memory_mb()
    with closing(Client(service.port)) as client:
        client.send(b"", length=100_000_000)
        with suppress(OSError):
            for _ in range(100):
                client.send_more(b" " * 1_000_000)
        status = client.status()
    more = service.memory_mb() - before
    text = f"{status}, {more:.0f} MB more memory"
    yield Goal("a body of 100 MB is refused", text, status == "413" and more < 20)


def stop(service: ServiceProcess, lines: Lines, num_clients: int) -> Goal:
    """Send SIGTERM while all clients ask; each continues until the service closes its connection."""
    timer = threading.Timer(2, service.process.send_signal, (signal.SIGTERM,))
    timer.start()
    seen = together(service.port, lines, num_clients, SECONDS)
    started = time.perf_counter()
    code = service.process.wait(SECONDS)
    seconds = time.perf_counter() - started
    text = f"{len(seen.seconds):,} answered, then exit code {code} after {seconds:.1f} s"
    return Goal("SIGTERM ends it soon", text, code == 0 and seconds < 5)


def measure(arguments: argparse.Namespace) -> Iterator[Goal]:
    text = Path(arguments.file).read_text(encoding="utf-8")
    sources = [" ".join(line.split()) for line in text.splitlines() if line.strip()][:NUM_LINES]
    translator = Translator.from_run(arguments.run, precision=arguments.precision, engine=arguments.engine)
    with serving(arguments.run, arguments.precision, arguments.engine) as service:
        lines, goal = alone(translator, sources, service.port)
        yield goal
        yield from load(service, lines, arguments.clients, arguments.seconds)
        yield from hostile(service)
        yield flood(service, lines, arguments.flood)
        yield stop(service, lines, arguments.clients)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", required=True, help="the run directory")
    parser.add_argument("--file", required=True, help="sentences, one a line")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60, help="of the load by all clients; at least 6")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--flood", type=int, default=10_000, help="requests that are sent at once")
    all_met = True
    for goal in measure(parser.parse_args()):
        print(f"{'met   ' if goal.is_met else 'MISSED'}  {goal.promise:45} {goal.seen}", flush=True)
        all_met &= goal.is_met
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
