"""Minutes to quality: `mt` with the config of `mt init --minutes` against a plain Hugging Face loop.

python -m scripts.benchmark.race --data FOLDER [--minutes 5 10 20] [--plot docs/race.png]

Both train in turns on the same cores for the same minutes, counted from the start of the process to the
last step, each in its faster precision and without validation, and are scored on the test split with greedy
search. FOLDER has train.jsonl, val.jsonl and test.jsonl. `mt` chooses its config for the minutes and the
corpus; the loop (`scripts.benchmark.marian_loop`) has the settings that its users begin with. With
--minutes-without-amx, `mt` also runs as on a processor without AMX.
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from sacrebleu.metrics.bleu import BLEU

from mt.data.unsegmented_scripts import bleu_tokenizer
from scripts.benchmark import doubts, machine

SIDES = MT, MT_WITHOUT_AMX, MARIAN = ("mt", "mt without AMX", "Hugging Face Marian")
# oneDNN then computes bf16 in float32, so that `mt init` finds float32 faster.
WITHOUT_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}


@dataclass(frozen=True)
class Finish:
    """What a side reached in its minutes."""

    side: str
    minutes: float
    """What it was given."""
    took_minutes: float
    """From the start of the process to the last step."""
    tgt_tokens: int
    precision: str
    bleu: float
    load: float
    """Processes that waited for a core, on average of the minute before the end."""
    stolen: float
    """The share of the processors' time that the host gave to others."""


@dataclass(frozen=True)
class Race:
    """What all runs share."""

    data: Path
    src: str
    tgt: str
    folder: Path
    environment: dict[str, str]

    @property
    def references(self) -> list[str]:
        """The targets of the test split."""
        lines = (self.data / "test.jsonl").read_text(encoding="utf-8").split("\n")
        return [json.loads(line)[self.tgt] for line in lines if line]

    def run_mt(self, side: str, minutes: float, precision: str | None) -> Finish:
        """`mt init --minutes`, `mt train`, `mt evaluate`."""
        name = f"{side.replace(' ', '-')}-{minutes:g}"
        config, run = self.folder / f"{name}.yaml", self.folder / name
        environment = self.environment | (WITHOUT_AMX if side == MT_WITHOUT_AMX else {})
        config.unlink(missing_ok=True)
        shutil.rmtree(run, ignore_errors=True)
        languages = ["--src", self.src, "--tgt", self.tgt]
        self._call(
            *("mt", "init", "--data", str(self.data), *languages),
            *("--minutes", f"{minutes:g}", "--output", str(config)),
            environment=environment,
        )
        never = "1000000000"
        without = [f"validation.every_steps={never}", f"checkpoint.every_steps={never}"]
        if precision is not None:
            without.append(f"training.precision={precision}")
        stolen = machine.StolenTime()
        began = time.time()
        self._call(
            *("mt", "train", "--config", str(config), "--run", str(run)),
            *(word for option in without for word in ("--set", option)),
            environment=environment,
        )
        took, load, share_stolen = time.time() - began, os.getloadavg()[0], stolen.share()
        scores = self.folder / f"{name}-scores.json"
        self._call("mt", "evaluate", "--run", str(run), "--split", "test", "--json", str(scores))
        [hypotheses] = run.glob("hypotheses.test*.txt")
        last = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][-1]
        settings = yaml.safe_load((run / "config.yaml").read_text())["training"]
        return Finish(
            side,
            minutes,
            took / 60,
            int(last["num_target_tokens"]),
            settings["precision"],
            self._bleu(hypotheses),
            load,
            share_stolen,
        )

    def run_marian(self, minutes: float) -> Finish:
        """The plain loop, which stops by itself."""
        out = self.folder / f"marian-{minutes:g}.txt"
        files = ["--train", str(self.data / "train.jsonl"), "--test", str(self.data / "test.jsonl")]
        limits = ["--minutes", f"{minutes:g}", "--began", f"{time.time():.3f}", "--out", str(out)]
        stolen = machine.StolenTime()
        self._call("scripts.benchmark.marian_loop", *files, "--src", self.src, "--tgt", self.tgt, *limits)
        facts = json.loads(out.with_suffix(".json").read_text())
        load = os.getloadavg()[0]
        return Finish(
            MARIAN,
            minutes,
            facts["minutes"],
            facts["tgt_tokens"],
            facts["precision"],
            self._bleu(out),
            load,
            stolen.share(),
        )

    def _call(self, *module_and_arguments: str, environment: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", *module_and_arguments]
        print(f"{datetime.datetime.now():%H:%M:%S} {' '.join(command[2:])}", file=sys.stderr, flush=True)
        with (self.folder / "race.log").open("a") as log:
            subprocess.run(command, check=True, env=environment or self.environment, stdout=log, stderr=log)

    def _bleu(self, hypotheses: Path) -> float:
        metric = BLEU(tokenize=bleu_tokenizer(self.references))
        return float(
            metric.corpus_score(hypotheses.read_text("utf-8").split("\n")[:-1], [self.references]).score
        )


def table(finishes: list[Finish]) -> str:
    """The finishes in Markdown, in the order of the minutes."""
    lines = [
        "| minutes | | took | target tokens | precision | BLEU | stolen |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in sorted(finishes, key=lambda finish: (finish.minutes, finish.side)):
        lines.append(
            f"| {one.minutes:g} | {one.side} | {one.took_minutes:.1f} | {one.tgt_tokens:,} | "
            f"{one.precision} | {one.bleu:.2f} | {one.stolen:.1%} |"
        )
    return "\n".join(lines)


def plot(finishes: list[Finish], file: Path, caption: str) -> None:
    """Draw BLEU against the minutes that were taken."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), dpi=150)
    for side, style in zip(SIDES, ("o-", "^-.", "s--"), strict=True):
        points = sorted((one.took_minutes, one.bleu) for one in finishes if one.side == side)
        if points:
            axes.plot(*zip(*points, strict=True), style, label=side)
    axes.set(xlabel="minutes from the start of the process to the last step", ylabel="BLEU, greedy search")
    axes.set_title(caption, fontsize=7)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="a folder with train.jsonl, val.jsonl and test.jsonl")
    add("--src", default="en")
    add("--tgt", default="de")
    add("--minutes", type=float, nargs="+", default=[5, 10, 20], help="budgets (default: 5 10 20)")
    add("--minutes-without-amx", type=float, nargs="+", default=[], help="budgets of mt as without AMX")
    add("--marian-minutes", type=float, nargs="+", help="budgets of the peer (default: those of --minutes)")
    add("--precision", help="training.precision of mt (default: what mt init writes)")
    add("--threads", type=int, default=machine.num_cores(), help="threads of each side (default: all cores)")
    add("--folder", type=Path, default=Path("runs/race"), help="for runs and logs")
    add("--plot", type=Path, help="a picture to write")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    threads = {"OMP_NUM_THREADS": str(options.threads), "MKL_NUM_THREADS": str(options.threads)}
    race = Race(options.data, options.src, options.tgt, options.folder, os.environ | threads)
    finishes: list[Finish] = []
    starts: list[tuple[float, str]] = [
        *((minutes, MT) for minutes in options.minutes),
        *((minutes, MT_WITHOUT_AMX) for minutes in options.minutes_without_amx),
        *((minutes, MARIAN) for minutes in options.marian_minutes or options.minutes),
    ]
    for minutes, side in sorted(starts):
        one = race.run_marian(minutes) if side == MARIAN else race.run_mt(side, minutes, options.precision)
        finishes.append(one)
        print(f"{one}", file=sys.stderr, flush=True)
        for doubt in doubts.about_stolen_time(one.stolen):
            print(f"not to be trusted: {doubt}", file=sys.stderr, flush=True)
        record = json.dumps([asdict(finish) for finish in finishes], indent=1)
        (options.folder / "finishes.json").write_text(record)
    where = f"{machine.processor()}, {options.threads} threads, {datetime.date.today()}"
    caption = f"{where}; BLEU: sacreBLEU, {bleu_tokenizer(race.references)}, mixed case"
    print(f"{caption}\n\n{table(finishes)}")
    if options.plot is not None:
        plot(finishes, options.plot, caption)


if __name__ == "__main__":
    main()
