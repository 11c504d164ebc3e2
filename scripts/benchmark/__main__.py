"""What `scripts/bench` calls: measure, print, and write a report."""

import argparse
import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from mt.device import choose_precision, multiplies_bf16_fast
from scripts.benchmark import doubts, layouts, machine, report
from scripts.benchmark.process import REPOSITORY, SideError, Worker
from scripts.benchmark.session import Job, JobPrecision
from scripts.benchmark.sizes import SIZES
from scripts.benchmark.training import SAME_BATCHES, Rounds, measure_training
from scripts.benchmark.translating import measure_translating
from scripts.benchmark.workload import Description, decoding_texts

TOOLKITS = ("eole", "joeynmt")
TRANSLATING = (
    "mt_translate",
    "mt_translate_float32",
    "marian_generate",
    "ctranslate2_float32",
    "ctranslate2_float32_workers",
    "ctranslate2_int8",
    "ctranslate2_int8_workers",
)
PACKAGES = ("torch", "tokenizers", "transformers", "ctranslate2", "eole", "joeynmt")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    add = parser.add_argument
    add("--data", default="builtin:primer", help="a corpus as data.path takes it (default: %(default)s)")
    add("--src", default="en", help="the language translated from (default: %(default)s)")
    add("--tgt", default="de", help="the language translated to (default: %(default)s)")
    add("--quick", action="store_true", help="a tiny model for a minute, to see that everything works")
    add("--cuda", action="store_true", help="train the base model in bf16 and translate on CUDA")
    add("--threads", type=int, default=machine.num_cores(), help="threads of each side (default: all cores)")
    add("--sizes", nargs="+", choices=SIZES, help="models to train (default: small base)")
    add("--batch-tokens", type=int, help="of a batch (default: 4096; on CUDA 25000)")
    add("--sides", nargs="+", help="train these sides only, besides mt")
    add("--no-train", action="store_true", help="only translate")
    add("--no-translate", action="store_true", help="only train")
    add("--rounds", type=int, default=4, help="rounds of training and of greedy search (default: 4)")
    add("--bleu", type=float, default=25, help="quality of the model that translates (default: 25)")
    add("--environments", type=Path, default=REPOSITORY / ".bench", help="where eole and joeynmt live")
    add("--folder", type=Path, default=REPOSITORY / "runs" / "bench", help="for intermediate files and logs")
    add("--output", type=Path, default=REPOSITORY / "runs" / "bench.md", help="the report to write")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    began = time.perf_counter()
    benchmark = Benchmark(options)
    sections = benchmark.run()
    sections.insert(0, benchmark.introduction(time.perf_counter() - began))
    benchmark.doubts += doubts.about_stolen_time(benchmark.stolen.share())
    text = "\n\n".join(sections)
    print(text)
    if benchmark.doubts:
        reasons = "".join(f"- {doubt}\n" for doubt in benchmark.doubts)
        print(f"\nnot written, because this run is not to be trusted:\n{reasons}", file=sys.stderr)
        # A quick run shows that everything works; nobody reads its figures.
        return 0 if options.quick else 1
    if not options.quick:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(f"{text}\n", encoding="utf-8")
        print(f"\nwritten to {options.output}", file=sys.stderr)
    return 0


class Benchmark:
    """One run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = "cuda" if options.cuda else "cpu"
        # Mixed precision only where it pays.
        self.precisions: list[JobPrecision] = ["bf16"] if options.cuda else ["float32"]
        if not options.cuda and multiplies_bf16_fast(torch.device("cpu")):
            self.precisions.append("bf16")
        self.failures: dict[str, str] = {}
        self.doubts: list[str] = []
        self.load = machine.load()
        self.stolen = machine.StolenTime()
        self.rounds_said: list[str] = []
        self.folder = options.folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        default = ["tiny"] if options.quick else ["base"] if options.cuda else ["small", "base"]
        self.sizes = [SIZES[name] for name in options.sizes or default]
        self.description: Description | None = None

    def run(self) -> list[str]:
        """Measure; the sections of the report."""
        self._prepare()
        sections = []
        if not self.options.no_train:
            sections += [
                self._train(self._job(size.name, precision))
                for precision in self.precisions
                for size in self.sizes
            ]
        if not self.options.no_translate:
            sections += self._translate()
        if self.failures:
            said = [f"- {report.NAMES.get(side, side)}: {why}" for side, why in self.failures.items()]
            sections.append("Left out:\n\n" + "\n".join(said))
        return sections

    def introduction(self, seconds: float) -> str:
        """On what, with what, when, and how it was measured."""
        assert self.description is not None
        where = machine.graphics() if self.options.cuda else machine.processor()
        pythons = {sys.executable, *self._toolkits().values()}
        versions = sorted({version for python in pythons for version in machine.versions(python, PACKAGES)})
        return "\n".join(
            [
                f"Measured on {datetime.date.today()} on {where}, {self.options.threads} thread(s), "
                f"Python {sys.version.split()[0]}, {', '.join(versions)}, "
                f"in {seconds / 60:.0f} minutes. {machine.scheduling()}; load {self.load} at the beginning "
                f"and {machine.load()} at the end; the host gave "
                f"{self.stolen.share():.1%} of the processors' time to others.",
                "",
                report.workload_text(self.description, rounds=self.rounds_said),
            ]
        )

    def _job(self, size: str, precision: JobPrecision | None = None) -> Job:
        return Job(self.folder, SIZES[size], self.device, precision or self.precisions[0])

    def _prepare(self) -> None:
        options = self.options
        _say("reading the corpus and training the subword vocabularies")
        with Worker("prepare", self._job(self.sizes[0].name), threads=options.threads) as worker:
            answer = worker.ask(
                do="make_workload",
                data=str(Path(options.data).resolve()) if Path(options.data).exists() else options.data,
                src=options.src,
                tgt=options.tgt,
                num_pairs=2_000 if options.quick else 29_000,
                batch_tokens=options.batch_tokens
                or (1_000 if options.quick else 25_000 if options.cuda else 4_096),
            )
            self.description = Description(**answer)

    def _toolkits(self) -> dict[str, str]:
        """Those that have an environment, and its Python."""
        pythons = {side: self.options.environments / side / "bin" / "python" for side in TOOLKITS}
        return {side: str(python.absolute()) for side, python in pythons.items() if python.exists()}

    def _train(self, job: Job) -> str:
        options = self.options
        with Worker("prepare", job, threads=options.threads) as worker:
            worker.ask(do="first_weights")
        sides = dict.fromkeys(("mt_train", "torch_loop", "marian"), sys.executable) | self._toolkits()
        for side in TOOLKITS:
            if side not in sides:
                self.failures[side] = f"no environment in {options.environments.name}/{side}"
        if job.precision != self.precisions[0]:
            # Those that compute the same are enough to see what it brings.
            sides = {side: python for side, python in sides.items() if side in SAME_BATCHES}
        if job.size.name == "base":
            # A step of either takes as long as a round of the others.
            sides.pop("joeynmt", None)
        elif job.precision == self.precisions[0]:
            sides["tutorial"] = sys.executable
        if options.sides:
            sides = {side: python for side, python in sides.items() if side in ["mt_train", *options.sides]}
        rounds = {
            "tiny": Rounds(2, 2, 1.0),
            "small": Rounds(options.rounds, 5, 8.0),
            "base": Rounds(options.rounds, 20 if options.cuda else 2, 8.0),
        }[job.size.name]
        _say(f"training {job.size.name} in {job.precision}: {', '.join(sides)}")
        said = (
            f"{job.size.name}: {rounds.number} rounds of {rounds.steps} steps, or of at least "
            f"{rounds.seconds:g} seconds where batches are not shared."
        )
        if said not in self.rounds_said:
            self.rounds_said.append(said)
        results, ceilings = measure_training(
            sides, job, rounds, threads=options.threads, failures=self.failures
        )
        if not any(result.side == "mt_train" for result in results):
            raise SystemExit(f"mt itself failed: {self.failures['mt_train']}")
        self.doubts += doubts.about_ceilings(ceilings)
        return report.training_table(job, results, ceilings)

    def _learn(self, job: Job) -> dict[str, Any]:
        """Make the model that translates, or take the one that an earlier run trained to this quality."""
        bleu = 0.0 if self.options.quick else self.options.bleu
        _say(f"training the model that translates to BLEU {bleu:g}, unless it is there")
        with Worker("prepare", job, threads=self.options.threads) as worker:
            return worker.ask(do="learn", bleu=bleu, num_sentences=20 if self.options.quick else 1_000)

    def _translate(self) -> list[str]:
        options = self.options
        job = self._job("tiny" if options.quick else "small")
        learnt = self._learn(job)
        sides = layouts.sides_that_differ(TRANSLATING, threads=options.threads, device=self.device)
        try:
            with Worker("ctranslate2_export", job, threads=options.threads):
                pass
        except SideError as error:
            sides = [side for side in sides if not side.startswith("ctranslate2")]
            self.failures["ctranslate2_float32"] = str(error)
        beams = {1: 1, 5: 1} if options.quick else {1: options.rounds, 5: 3}
        _say(f"translating {len(decoding_texts(job.folder)):,} sentences: {', '.join(sides)}")
        results = measure_translating(sides, job, beams, threads=options.threads, failures=self.failures)
        if "mt_translate" in self.failures:
            raise SystemExit(f"mt itself failed: {self.failures['mt_translate']}")
        lines = {f"{result.side}-{result.beam_size}": result.lines for result in results}
        (self.folder / "translations.json").write_text(json.dumps(lines, ensure_ascii=False, indent=1))
        if not options.quick:
            self.doubts += doubts.about_peers(results, self.device)
            self.doubts += doubts.about_sentences(learnt["left_out"], learnt["tried"])
        precision = choose_precision("auto", torch.device(self.device))
        text = (
            f"The model that translates: {job.size.name}, {learnt['steps']:,} steps of about 1,000 tokens, "
            f"BLEU {learnt['bleu']:.1f}; {learnt['left_out']:,} of {learnt['tried']:,} sentences were left "
            f"out. mt translates in {precision}, its default here, Hugging Face in {job.precision}."
        )
        tables = [
            report.translating_table([r for r in results if r.beam_size == beam], beam, options.threads)
            for beam in beams
        ]
        return [text, *tables]


def _say(what: str) -> None:
    print(f"{datetime.datetime.now():%H:%M:%S} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
