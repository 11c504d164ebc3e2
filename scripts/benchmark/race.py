"""Minutes to quality: `mt` with the config of `mt init --minutes` against a plain Hugging Face loop.

python -m scripts.benchmark.race --data FOLDER [--minutes 5 10 20] [--plot docs/race.png]

Both train in turns on the same cores for the same minutes, counted from the start of the process to the
last step, each in its faster precision and without validation, and are scored on the test split with greedy
search. FOLDER has train.jsonl, val.jsonl and test.jsonl. `mt` chooses its config for the minutes and the
corpus; the loop (`scripts.benchmark.marian_loop`) has the settings that its users begin with.
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import yaml
from sacrebleu.metrics.bleu import BLEU

from mt.inference.bleu import bleu_tokenizer
from scripts.benchmark import machine

SIDES = MT, MARIAN = ("mt", "Hugging Face Marian")


@dataclass(frozen=True)
class Finish:
    """What a side reached in its minutes."""

    side: str
    minutes: float
    """From the start of the process to the last step."""
    tgt_tokens: int
    precision: str
    bleu: float

    def __str__(self) -> str:
        figures = f"{self.minutes:.1f} | {self.tgt_tokens:,} | {self.precision} | {self.bleu:.2f}"
        return f"| {self.side} | {figures} |"


@dataclass(frozen=True)
class Race:
    """What all runs share."""

    data: Path
    src: str
    tgt: str
    folder: Path
    threads: int

    @property
    def references(self) -> list[str]:
        """The targets of the test split."""
        lines = (self.data / "test.jsonl").read_text(encoding="utf-8").split("\n")
        return [json.loads(line)[self.tgt] for line in lines if line]

    def run_mt(self, minutes: float) -> Finish:
        """`mt init --minutes`, `mt train`, `mt evaluate`."""
        config, run = self.folder / f"mt-{minutes:g}.yaml", self.folder / f"mt-{minutes:g}"
        config.unlink(missing_ok=True)
        shutil.rmtree(run, ignore_errors=True)
        corpus = ["--data", str(self.data), "--src", self.src, "--tgt", self.tgt]
        self._call("mt", "init", *corpus, "--minutes", f"{minutes:g}", "--output", str(config))
        never = [f"{section}.every_steps=1000000000" for section in ("validation", "checkpoint")]
        began = time.time()
        options = [word for option in never for word in ("--set", option)]
        self._call("mt", "train", "--config", str(config), "--run", str(run), *options)
        took_minutes = (time.time() - began) / 60
        self._call("mt", "evaluate", "--run", str(run), "--split", "test")
        [hypotheses] = run.glob("hypotheses.test*.txt")
        last = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][-1]
        precision = yaml.safe_load((run / "config.yaml").read_text())["training"]["precision"]
        return Finish(MT, took_minutes, int(last["num_target_tokens"]), precision, self._bleu(hypotheses))

    def run_marian(self, minutes: float) -> Finish:
        """The plain loop, which stops by itself."""
        out = self.folder / f"marian-{minutes:g}.txt"
        files = ["--train", str(self.data / "train.jsonl"), "--test", str(self.data / "test.jsonl")]
        limits = ["--minutes", f"{minutes:g}", "--began", f"{time.time():.3f}", "--out", str(out)]
        self._call("scripts.benchmark.marian_loop", *files, "--src", self.src, "--tgt", self.tgt, *limits)
        facts = json.loads(out.with_suffix(".json").read_text())
        return Finish(MARIAN, facts["minutes"], facts["tgt_tokens"], facts["precision"], self._bleu(out))

    def _call(self, *module_and_arguments: str) -> None:
        command = [sys.executable, "-m", *module_and_arguments]
        print(f"{datetime.datetime.now():%H:%M:%S} {' '.join(command[2:])}", file=sys.stderr, flush=True)
        threads = {"OMP_NUM_THREADS": str(self.threads), "MKL_NUM_THREADS": str(self.threads)}
        with (self.folder / "race.log").open("a") as log:
            subprocess.run(command, check=True, env=os.environ | threads, stdout=log, stderr=log)

    def _bleu(self, hypotheses: Path) -> float:
        lines = hypotheses.read_text("utf-8").split("\n")[:-1]
        metric = BLEU(tokenize=bleu_tokenizer(self.references))
        return float(metric.corpus_score(lines, [self.references]).score)


def plot(finishes: list[Finish], file: Path, caption: str) -> None:
    """Draw BLEU against the minutes that were taken."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), dpi=150)
    for side, style in zip(SIDES, ("o-", "s--"), strict=True):
        points = sorted((one.minutes, one.bleu) for one in finishes if one.side == side)
        axes.plot(*zip(*points, strict=True), style, label=side)
    axes.set(xlabel="minutes from the start of the process to the last step", ylabel="BLEU, greedy search")
    axes.set_title(caption, fontsize=7)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench --race", description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--data", type=Path, required=True, help="a folder with train.jsonl, val.jsonl and test.jsonl")
    add("--src", default="en")
    add("--tgt", default="de")
    add("--minutes", type=float, nargs="+", default=[5, 10, 20], help="budgets (default: 5 10 20)")
    add("--marian-minutes", type=float, nargs="+", help="budgets of the peer (default: those of --minutes)")
    add("--threads", type=int, default=machine.num_cores(), help="threads of each side (default: all cores)")
    add("--folder", type=Path, default=Path("runs/race"), help="for runs and logs")
    add("--plot", type=Path, help="a picture to write")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    race = Race(options.data, options.src, options.tgt, options.folder, options.threads)
    stolen = machine.StolenTime()
    starts = [(minutes, race.run_mt) for minutes in options.minutes]
    starts += [(minutes, race.run_marian) for minutes in options.marian_minutes or options.minutes]
    finishes: list[Finish] = []
    for minutes, run in sorted(starts, key=lambda start: start[0]):
        finishes.append(run(minutes))
        print(finishes[-1], file=sys.stderr, flush=True)
    where = f"{machine.processor()}, {options.threads} threads, {datetime.date.today()}"
    caption = f"{where}; BLEU: sacreBLEU, {bleu_tokenizer(race.references)}, mixed case"
    print(f"{caption}. {stolen}\n\n| | minutes | target tokens | precision | BLEU |\n|---|---|---|---|---|")
    print(*finishes, sep="\n")
    if options.plot is not None:
        plot(finishes, options.plot, caption)


if __name__ == "__main__":
    main()
