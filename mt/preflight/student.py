"""`mt init --student-of`: the config of a small, fast model that learns what a larger one writes."""

import time
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.load import load_config
from mt.config.model import ModelConfig
from mt.config.sources import WriterConfig
from mt.data.corpus import evenly_spaced, load_corpus
from mt.device import keeping_threads
from mt.errors import ConfigError
from mt.inference.engine.convert import write_ctranslate2
from mt.inference.engine.ctranslate2_engine import CTranslate2Engine, cpu_has_int8
from mt.inference.engines import Rules, Sentence
from mt.inference.exported_folder import ExportPrecision, ModelFacts
from mt.inference.loaded_model import ModelOfText, build_model
from mt.inference.writer import open_writer
from mt.preflight.init import Proposal, propose_config
from mt.preflight.trial import Sample
from mt.run_directory import as_run
from mt.search.strategy import Constraints

BEAM = 5
"""The beam with which a teacher writes."""
FASTER = 2.0
"""How many times as fast as its teacher a student is to translate; it is narrower if that needs it."""
WIDTHS = (1.0, 0.75, 0.5)
_LINES_TIMED, _TOKENS_TIMED = 200, 15
# Others may have the processor for a while.
_SECONDS_TIMED = 1.0


def propose_student(teachers: str, data: DataConfig, minutes: float | None) -> Proposal:
    """Propose a config for a student of these runs, such as ``runs/a,runs/b``, on the sources of ``data``."""
    if len(data.directions) > 1:
        raise ConfigError("a student has one direction: name it with --src and --tgt.")
    writer = WriterConfig(run=teachers, beam=BEAM)
    teacher = load_config(as_run(teachers.split(",")[0].strip()).require().config_file)
    sources = load_corpus(data).train["src"]
    with keeping_threads():
        translate = open_writer(writer, data.direction).translate
        some = [sources[row] for row in evenly_spaced(len(sources), _LINES_TIMED).tolist()]
        # The first call also starts the engine.
        translate(some[:1], 1)
        started = time.perf_counter()
        translate(some, 1)
        line_seconds = (time.perf_counter() - started) / len(some)
    data = data.model_copy(update={"write_tgt": writer, "sources": {}})
    return propose_config(data, minutes, Student(teacher.model, len(sources), line_seconds))


@dataclass
class Student:
    """One decoder layer, and as wide and then as deep an encoder as `FASTER` permits."""

    teacher: ModelConfig
    num_lines: int
    line_seconds: float
    timed: dict[ModelConfig, float] = field(default_factory=dict)
    faster: float = 0.0
    """How many times as fast as the teacher's shape that of the student is."""

    @property
    def writing_seconds(self) -> float:
        """How long the teacher takes to write the targets."""
        return self.line_seconds * self.num_lines

    def shape(self, model: ModelConfig, sample: Sample) -> ModelConfig:
        """A model that translates fast, in place of the one that suits the run."""
        usual = model.num_encoder_layers
        # With the other layers of the decoder in the encoder, or without them.
        for share, layers in product(WIDTHS, (usual + model.num_decoder_layers - 1, usual)):
            width = max(128, round(share * model.d_model / 64) * 64)
            sizes = {"d_model": width, "num_heads": width // 64, "d_ff": 4 * width}
            sizes |= {"num_encoder_layers": layers, "num_decoder_layers": 1}
            student = model.model_copy(update=sizes)
            self.faster = self._seconds_of(self.teacher, sample) / self._seconds_of(student, sample)
            if self.faster >= FASTER:
                break
        return student

    def _seconds_of(self, model: ModelConfig, sample: Sample) -> float:
        if model not in self.timed:
            self.timed[model] = _search_seconds(sample.config.model_copy(update={"model": model}), sample)
        return self.timed[model]

    @property
    def summary(self) -> list[str]:
        """What was timed, a line for each."""
        layers = f"{self.teacher.num_encoder_layers} + {self.teacher.num_decoder_layers}"
        return [
            f"writing  {self.writing_seconds / 60:.1f} of these minutes: {self.num_lines:,} targets, with a "
            f"beam of {BEAM}, {1 / self.line_seconds:,.0f} a second",
            f"speed    {self.faster:.1f} times that of the teacher's shape ({layers} layers of width "
            f"{self.teacher.d_model}), greedy, timed",
        ]


def _search_seconds(config: Config, sample: Sample) -> float:
    """How long the fast engine takes to write sentences of one length with a new model of this config."""
    tokenizers, pairs = sample.text.tokenizers, sample.pairs
    facts = ModelFacts("", "", 0, copies_words=False, target_ratio=1.0)
    model = ModelOfText(config, build_model(config, *tokenizers), *tokenizers, facts)
    precision: ExportPrecision = "int8" if cpu_has_int8() else "float32"
    rows = evenly_spaced(len(pairs), _LINES_TIMED).tolist()
    sentences = [Sentence(row, pairs.src[row].tolist(), limit=_TOKENS_TIMED + 1) for row in rows]
    rules = Rules(constraints=Constraints(min_length=_TOKENS_TIMED), with_scores=False)
    with keeping_threads(), TemporaryDirectory() as folder:
        write_ctranslate2(model, Path(folder), precision)
        engine = CTranslate2Engine(Path(folder), *tokenizers)
        fastest, end = float("inf"), time.perf_counter() + _SECONDS_TIMED
        while (started := time.perf_counter()) < end:
            engine.search(sentences, rules, lambda: None, lambda indices: None)
            fastest = min(fastest, time.perf_counter() - started)
    return fastest
