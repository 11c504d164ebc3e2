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
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from mt.display import counted
from mt.inference.translator import Translator

SECONDS = 120
"""After which a client gives up. The service answers, or refuses, within 30."""
NUM_LINES = 200
ROUNDS_ALONE = 5
TEXTS_OF_A_FLOOD = 20
HEAD = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@dataclass(frozen=True)
class Goal:
    """What is promised, what was seen, and whether that keeps the promise."""

    promise: str
    seen: str
    is_met: bool


class ServiceProcess:
    """`mt serve` in a process of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log
        self.port = 0

    def wait_until_it_serves(self) -> None:
        while not self.port:
            if self.process.poll() is not None:
                sys.exit(self._log.read_text())
            for line in self._log.read_text().splitlines():
                if "serving at" in line:
                    self.port = int(line.split(";")[0].rpartition(":")[2])
            time.sleep(0.1)

    def memory_mb(self) -> float:
        """What it holds in memory now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def is_well(self) -> bool:
        """Whether it translates, at once or a moment later, when it has seen that others are gone."""
        for _ in range(100):
            with closing(Client(self.port)) as client, suppress(OSError):
                if client.translate("a")[0] == 200:
                    return True
            time.sleep(0.1)
        return False


@contextmanager
def serving(run: str, precision: str, engine: str) -> Iterator[ServiceProcess]:
    command = [sys.executable, "-m", "mt", "serve", "--run", run, "--port", "0", "--precision", precision]
    command += ["--engine", engine]
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(command, stderr=log)
        service = ServiceProcess(process, Path(log.name))
        try:
            service.wait_until_it_serves()
            yield service
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

    def send(self, body: bytes) -> None:
        self._socket.sendall(b"%sContent-Length: %d\r\n\r\n%s" % (HEAD, len(body), body))

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> tuple[int, Any]:
        """The status and the JSON of the next answer.

        Raises:
            ConnectionError: If there is none.
        """
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

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


@dataclass
class Seen:
    """What clients have seen."""

    seconds: list[float] = field(default_factory=list)
    """How long each answer took."""
    num_errors: int = 0
    """Refusals, and connections that ended."""
    num_misplaced: int = 0
    """Answers to another text than the one that was sent."""
    num_different: int = 0
    """Translations that are not those of `Translator` for the text alone."""

    def ask(self, client: Client, line: str, expected: str) -> None:
        started = time.perf_counter()
        status, said = client.translate(line)
        self.seconds.append(time.perf_counter() - started)
        if status != 200:
            self.num_errors += 1
            return
        [result] = said["results"]
        self.num_misplaced += result["source"] != line
        self.num_different += result["translations"][0]["text"] != expected

    def median_ms(self) -> float:
        return 1000 * statistics.median(self.seconds)

    def highest_ms(self, share: float) -> float:
        return 1000 * sorted(self.seconds)[int(share * (len(self.seconds) - 1))]


Lines = Sequence[tuple[str, str]]
"""Lines with their translations."""


def alone(translator: Translator, sources: Sequence[str], port: int) -> tuple[Lines, list[float], Seen]:
    """Translate line by line, by turns with `Translator` and with the idle service.

    Returns:
        The lines with their translations, the seconds that each took `Translator`, and what the client saw.
    """
    lines: list[tuple[str, str]] = []
    own: list[float] = []
    seen = Seen()
    translator.translate(sources[:10])
    size = -(-len(sources) // ROUNDS_ALONE)
    for start in range(0, len(sources), size):
        for source in sources[start : start + size]:
            started = time.perf_counter()
            [translation] = translator.translate([source])
            own.append(time.perf_counter() - started)
            lines.append((source, translation))
        # The service closes a connection on which nothing has been sent for five seconds.
        with closing(Client(port)) as client:
            client.translate(sources[0])
            for line, translation in lines[start:]:
                seen.ask(client, line, translation)
    return lines, own, seen


def together(port: int, lines: Lines, num_clients: int, seconds: float) -> Seen:
    """Let clients send lines for some seconds, each beginning at another one."""
    seen = [Seen() for _ in range(num_clients)]
    stop_at = time.perf_counter() + seconds

    def work(number: int) -> None:
        first = number * len(lines) // num_clients
        try:
            with closing(Client(port)) as client:
                for line, expected in islice(cycle(lines), first, None):
                    if time.perf_counter() > stop_at:
                        return
                    seen[number].ask(client, line, expected)
        except OSError:
            seen[number].num_errors += 1

    _in_threads(work, num_clients)
    return Seen(
        [each for one in seen for each in one.seconds],
        sum(one.num_errors for one in seen),
        sum(one.num_misplaced for one in seen),
        sum(one.num_different for one in seen),
    )


def load(
    service: ServiceProcess, lines: Lines, num_clients: int, seconds: float, one: float
) -> Iterator[Goal]:
    """Load the service with all clients; ``one`` is how many sentences a second one client gets."""
    memory: list[float] = []
    timer = threading.Timer(5, lambda: memory.append(service.memory_mb()))
    timer.start()
    seen = together(service.port, lines, num_clients, seconds)
    timer.join()
    speed = len(seen.seconds) / seconds
    after = service.memory_mb()
    latencies = f"median {seen.median_ms():.0f} ms, 99 % within {seen.highest_ms(0.99):.0f} ms"
    yield Goal("at least 120 sentences/s", f"{speed:.1f} sentences/s, {latencies}", speed >= 120)
    yield Goal(
        "at least 3 times one client", f"{speed / one:.2f} times {one:.1f} sentences/s", speed >= 3 * one
    )
    yield Goal(
        "every request answered, in order",
        f"{len(seen.seconds):,} answers, {counted(seen.num_errors, 'error')}, {seen.num_misplaced} misplaced",
        not seen.num_errors and not seen.num_misplaced,
    )
    yield Goal(
        "each answer that of the text alone",
        f"{seen.num_different} of {len(seen.seconds):,} are others",
        not seen.num_different,
    )
    yield Goal(
        "memory flat",
        f"{memory[0]:.0f} MB after 5 s, {after:.0f} MB after {seconds:.0f} s",
        after < 1.05 * memory[0],
    )


def flood(service: ServiceProcess, lines: Lines, number: int) -> Goal:
    """Send requests over as many connections at once, before any answer is read."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    number = min(number, hard - 100)
    body = json.dumps({"texts": [line for line, _ in lines[:TEXTS_OF_A_FLOOD]]}).encode()
    statuses: Counter[str] = Counter()
    clients: list[Client] = []
    try:
        for _ in range(number):
            clients.append(Client(service.port))
            clients[-1].send(body)
        for client in clients:
            statuses[_status(client)] += 1
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return Goal(
        f"{number:,} requests at once are answered or refused",
        ", ".join(f"{count:,} x {status}" for status, count in sorted(statuses.items())),
        set(statuses) <= {"200", "429", "503"} and service.is_well(),
    )


def _status(client: Client) -> str:
    try:
        return str(client.receive()[0])
    except (OSError, ValueError) as error:
        return type(error).__name__


def hostile(service: ServiceProcess) -> Iterator[Goal]:
    """Bodies that are no text, or too large."""
    with closing(Client(service.port)) as client:
        client.send(b'{"text": "\xff\xfe"}')
        status = _status(client)
    yield Goal("a text that is not UTF-8 is refused", status, status == "400")
    before = service.memory_mb()
    with closing(Client(service.port)) as client:
        try:
            client.send_raw(b"%sContent-Length: %d\r\n\r\n" % (HEAD, 100_000_000))
            for _ in range(100):
                client.send_raw(b" " * 1_000_000)
        except OSError:
            pass
        status = _status(client)
    more = service.memory_mb() - before
    yield Goal(
        "a body of 100 MB is refused", f"{status}, {more:.0f} MB more memory", status == "413" and more < 20
    )


def stop(service: ServiceProcess, lines: Lines, num_clients: int) -> Goal:
    """Send SIGTERM while all clients ask; each continues until the service closes its connection."""
    statuses = Counter[str]()

    def work(number: int) -> None:
        with closing(Client(service.port)) as client:
            try:
                for line, _ in islice(cycle(lines), number, None):
                    status, _ = client.translate(line)
                    statuses[str(status)] += 1
            except OSError:
                return

    timer = threading.Timer(2, service.process.send_signal, (signal.SIGTERM,))
    timer.start()
    _in_threads(work, num_clients)
    started = time.perf_counter()
    code = service.process.wait(SECONDS)
    seconds = time.perf_counter() - started
    return Goal(
        "SIGTERM ends it soon",
        f"{statuses['200']:,} answered, then exit code {code} after {seconds:.1f} s",
        code == 0 and seconds < 5,
    )


def _in_threads(work: Callable[[int], None], number: int) -> None:
    threads = [threading.Thread(target=work, args=(each,)) for each in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure(arguments: argparse.Namespace) -> Iterator[Goal]:
    text = Path(arguments.file).read_text(encoding="utf-8")
    sources = [" ".join(line.split()) for line in text.splitlines() if line.strip()][:NUM_LINES]
    translator = Translator.from_run(arguments.run, precision=arguments.precision, engine=arguments.engine)
    with serving(arguments.run, arguments.precision, arguments.engine) as service:
        lines, own, seen = alone(translator, sources, service.port)
        own_ms = 1000 * statistics.median(own)
        yield Goal(
            "alone, at most 1.5 times Translator",
            f"{seen.median_ms() / own_ms:.2f} times: median {seen.median_ms():.1f} ms, {own_ms:.1f} ms",
            seen.median_ms() <= 1.5 * own_ms,
        )
        one = together(service.port, lines, 1, min(10, arguments.seconds))
        speed = len(one.seconds) / min(10, arguments.seconds)
        yield from load(service, lines, arguments.clients, arguments.seconds, speed)
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
