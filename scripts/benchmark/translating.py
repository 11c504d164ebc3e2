"""Whole programs that translate a file by the same model: `mt`, and ten lines with CTranslate2.

python -m scripts.benchmark.translating --run RUN --file FILE [--beam 5] [--precision float32]

Both are started as from a shell, in turns, for the first line of the file and for all of it. The ten lines
(`scripts.benchmark.ctranslate2_peer`) get what `mt export` writes.
"""

import argparse
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from scripts.benchmark import machine

ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/bench --translate", description=(__doc__ or "").split("\n")[0]
    )
    add = parser.add_argument
    add("--run", required=True, help="a trained run")
    add("--file", type=Path, required=True, help="sentences, one a line")
    add("--beam", default="1", help="1 is greedy search (default)")
    add("--precision", default="int8", help="int8 or float32 (default: %(default)s)")
    add("--threads", default=str(machine.num_cores()), help="threads of each side (default: all cores)")
    add("--folder", type=Path, default=Path("runs/translating"), help="for the export and translations")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    export, first = str(options.folder / "ctranslate2"), options.folder / "first"
    mt, peer = [sys.executable, "-m", "mt"], [sys.executable, "-m", "scripts.benchmark.ctranslate2_peer"]
    subprocess.run([*mt, "export", "--run", options.run, "--to", "ctranslate2", export], check=True)
    first.write_text(options.file.read_text(encoding="utf-8").split("\n")[0] + "\n", encoding="utf-8")
    beam, precision, threads = options.beam, options.precision, options.threads
    commands = {
        "mt": [*mt, "translate", "--run", options.run, "--beam", beam, "--precision", precision],
        "CTranslate2": [*peer, export, beam, threads, precision],
    }
    seconds: dict[tuple[str, Path], list[float]] = defaultdict(list)
    stolen = machine.StolenTime()
    for _ in range(ROUNDS):
        for file in (first, options.file):
            for side, command in commands.items():
                seconds[side, file].append(_timed(command, file, options.folder / f"{side}.txt", threads))
    lines = {side: (options.folder / f"{side}.txt").read_text("utf-8").split("\n") for side in commands}
    print(f"{machine.processor()}, {threads} threads, beam of {beam}, {precision}. {stolen}\n")
    print("| | one sentence, s | all, sentences/s | lines as of mt |\n|---|---|---|---|")
    for side in commands:
        same = sum(map(str.__eq__, lines[side], lines["mt"])) / len(lines["mt"])
        speed = (len(lines["mt"]) - 1) / median(seconds[side, options.file])
        print(f"| {side} | {median(seconds[side, first]):.2f} | {speed:,.0f} | {same:.1%} |")


def _timed(command: Sequence[str], file: Path, output: Path, threads: str) -> float:
    """Run a command on the lines of a file; its seconds."""
    environment = os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    with file.open() as lines, output.open("w") as translations:
        began = time.perf_counter()
        subprocess.run(command, stdin=lines, stdout=translations, env=environment, check=True)
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
