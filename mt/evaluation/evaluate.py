"""Translates a test set and scores the translations (`mt evaluate`)."""

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch.utils.tensorboard import SummaryWriter

import mt
from mt import distributed, processes
from mt.checkpoint.record import MODEL, Checkpoint
from mt.config.load import load_config
from mt.data.sources.source import Split
from mt.device import PrecisionName, choose_device
from mt.display import markdown_table, markdown_text, progress_bar, visible
from mt.errors import ConfigError
from mt.evaluation.analysis import Analysis, ScoredSentence, analyse_translations, worst_sentences
from mt.evaluation.record import (
    OtherCheckpoint,
    RecordedEvaluation,
    compare_with_other_checkpoints,
    name_in_setting,
    record_evaluation,
)
from mt.evaluation.scores import (
    MAX_RESAMPLED_LINES,
    Score,
    exact_match,
    score_with_confidence,
)
from mt.evaluation.test_set import EvaluationSet, load_evaluation_set, warn_of_other_split
from mt.files import write_atomically
from mt.inference.loaded_model import LoadedModel, load_ensemble
from mt.inference.model_translator import ModelTranslator
from mt.inference.translator import EngineChoice, Translator
from mt.run_directory import RunDirectory, as_run
from mt.search.strategy import Beam

LOG = logging.getLogger(__name__)

LiteratureScore = Callable[[Sequence[str], Sequence[str], str], Score]


@dataclass(frozen=True)
class Translations:
    """A run's translations of a test set, as they were written into the run directory."""

    setting: str
    """The test set, the checkpoint and the decoding strategy, as in the file's name."""
    engine: str
    precision: str
    lines: list[str]
    file: Path
    references_file: Path
    """The references, one per line, for sacreBLEU's own command."""


@dataclass(frozen=True)
class Evaluation:
    """How well a run translates a test set."""

    setting: str
    """The test set, the checkpoint and the decoding strategy."""
    engine: str
    precision: str
    """What searched, and the precision of its matrix products."""
    data: str
    """The corpus and split of the sentences."""
    checkpoint: str
    step: int
    """The optimizer step of the checkpoint."""
    num_sentences: int
    hypotheses_file: Path
    """The translations, one per line."""
    references_file: Path
    """The references, one per line."""
    scores: dict[str, Score]
    literature: Score | None
    exact: float
    """Percentage of translations that equal their reference."""
    exact_by_length: dict[int, tuple[int, float]] | None
    """For `builtin:reverse`, by number of source words: the number of sentences, and the percentage exact."""
    analysis: Analysis | None
    worst: list[ScoredSentence]
    ensemble: list[str]
    """The folders of the other checkpoints of an ensemble; empty for a single model."""
    other_checkpoints: list[OtherCheckpoint] = field(default_factory=list)
    """Earlier evaluations of the same sentences with the same search by other checkpoints of the run."""


def run_evaluation(
    run: str | Path | RunDirectory,
    *,
    split: Split = "test",
    checkpoint: str = "best",
    device: str | torch.device = "auto",
    precision: PrecisionName = "float32",
    engine: EngineChoice = "torch",
    data_path: str | None = None,
    data_name: str | None = None,
    beam: Beam | None = None,
    literature: LiteratureScore | None = None,
    analyse: bool = True,
    num_worst: int = 10,
    others: Sequence[str | Path | RunDirectory] = (),
) -> Evaluation:
    """Translate a test set, score the translations, and write them into the run directory.

    Args:
        run: The run directory.
        split: train, validation or test.
        checkpoint: best, latest, or a checkpoint's name.
        device: Where to compute: a device, or ``auto``, ``cpu``, ``cuda`` or ``mps``.
        precision: What to compute in; float32 unless told otherwise.
        engine: What searches; torch, the reference, unless told otherwise.
        data_path: Another corpus than the run's own, or a standard test set, as in `load_evaluation_set`.
        data_name: The configuration of that corpus.
        beam: The beam search; None searches greedily.
        literature: An additional score; it is called with the target language as third argument.
        analyse: Whether to also analyse words and lengths, which reads the training corpus.
        num_worst: How many of the worst sentences to return.
        others: Runs with the same vocabularies, to translate as an ensemble. Its scores are not recorded in
            the run directory, because they are not the run's.

    Raises:
        MtError: If the run, the checkpoint or the corpus cannot be used, or a reference is empty.
        SystemExit: In all processes except the first, once the sentences are translated.
    """
    run, other_runs = as_run(run).require(), [as_run(other) for other in others]
    run.check_writable()
    config = load_config(run.config_file)
    # Before reading the corpus, which may take long: training may remove this checkpoint at any time.
    loaded, *rest = load_ensemble([run, *other_runs], checkpoint)
    trained_on = {str(other.path): model.config.data for other, model in zip(other_runs, rest, strict=True)}
    test_set = load_evaluation_set(config, split, path=data_path, name=data_name, others=trained_on)
    for member in (run, *other_runs):
        warn_of_other_split(member, test_set)
    device = choose_device(device)
    with distributed.connected(device.type):
        translations = translate_set(
            run,
            loaded,
            test_set,
            device=device,
            beam=beam,
            precision=precision,
            others=rest,
            engine=engine,
        )
    saved, hypotheses = loaded.checkpoint, translations.lines
    if len(hypotheses) > MAX_RESAMPLED_LINES:
        LOG.info("more than %s sentences: scores without confidence intervals", f"{MAX_RESAMPLED_LINES:,}")
    texts = test_set.sources, hypotheses, test_set.references
    evaluation = Evaluation(
        setting=translations.setting,
        engine=translations.engine,
        precision=translations.precision,
        data=test_set.where,
        checkpoint=saved.name,
        step=saved.step,
        num_sentences=len(hypotheses),
        hypotheses_file=translations.file,
        references_file=translations.references_file,
        scores=score_with_confidence(hypotheses, test_set.references),
        literature=literature(*texts[1:], config.data.tgt) if literature else None,
        exact=exact_match(hypotheses, test_set.references),
        exact_by_length=_exact_by_length(*texts) if test_set.where.startswith("builtin:reverse,") else None,
        analysis=analyse_translations(run, config, test_set, hypotheses) if analyse else None,
        worst=worst_sentences(*texts, num_worst),
        ensemble=[visible(str(model.checkpoint.folder)) for model in rest],
    )
    if other_runs:
        return evaluation
    search = search_name(beam, translations.precision, translations.engine)
    alike = compare_with_other_checkpoints(run, test_set, saved.name, search, hypotheses)
    record_evaluation(run, _as_recorded(evaluation, beam))
    return replace(evaluation, other_checkpoints=alike)


def _as_recorded(evaluation: Evaluation, beam: Beam | None) -> RecordedEvaluation:
    literature = {} if evaluation.literature is None else {"literature_bleu": evaluation.literature}
    return RecordedEvaluation(
        time=datetime.now(UTC).replace(microsecond=0),
        mt_version=mt.__version__,
        setting=evaluation.setting,
        data=evaluation.data,
        checkpoint=evaluation.checkpoint,
        step=evaluation.step,
        search=described(beam),
        num_sentences=evaluation.num_sentences,
        exact=evaluation.exact,
        scores=evaluation.scores | literature,
        engine=evaluation.engine,
        precision=evaluation.precision,
    )


def described(beam: Beam | None) -> str:
    """The decoding strategy in words."""
    if beam is None:
        return "greedy search"
    return f"beam of {beam.size}, length penalty {beam.length_penalty:g} ({beam.length_normalization})"


def translate_set(
    run: RunDirectory,
    loaded: LoadedModel,
    test_set: EvaluationSet,
    *,
    device: torch.device,
    beam: Beam | None,
    precision: PrecisionName = "float32",
    others: Sequence[LoadedModel] = (),
    engine: EngineChoice = "torch",
) -> Translations:
    """Translate a test set and write the translations and the references into the run directory.

    With ``others``, an ensemble translates.
    """
    saved = loaded.checkpoint
    if engine != "torch" and others:
        raise ConfigError("only torch translates as an ensemble: leave the engine out.")
    translator: Translator = (
        ModelTranslator.from_loaded(loaded, device=device, others=others, precision=precision)
        if engine == "torch"
        else Translator.from_run(
            run, checkpoint=saved.name, device=device, precision=precision, engine=engine
        )
    )
    name = translator.engine.name
    setting = setting_name(saved, test_set, beam, translator.precision, name) + _ensemble_name(others)
    with progress_bar(len(test_set.sources), unit="sentences", description="translating") as bar:
        lines = translator.translate(test_set.sources, strategy=beam, advance=bar.update)
    if not processes.is_first():
        # The others have nothing more to do.
        raise SystemExit(0)
    # Each on one line, which does not change any score.
    lines = [line.replace("\n", " ") for line in lines]
    file, references_file = run.hypotheses_file(setting), run.references_file(test_set.name)
    for path, texts in ((references_file, test_set.references), (file, lines)):
        write_atomically(path, "".join(text + "\n" for text in texts))
    return Translations(setting, name, translator.precision, lines, file, references_file)


def setting_name(
    saved: Checkpoint,
    test_set: EvaluationSet,
    beam: Beam | None,
    precision: str = "float32",
    engine: str = "torch",
) -> str:
    """The test set, the checkpoint and the decoding strategy, for file names."""
    return f"{test_set.name}.{name_in_setting(saved)}.{search_name(beam, precision, engine)}"


def search_name(beam: Beam | None, precision: str, engine: str = "torch") -> str:
    """The decoding strategy, the precision and the engine, for file names."""
    mean = "-mean" if beam and beam.length_normalization == "mean" else ""
    search = f"beam{beam.size}-lp{beam.length_penalty:g}{mean}" if beam else "greedy"
    search = search if precision == "float32" else f"{search}-{precision}"
    return search if engine == "torch" else f"{search}-{engine}"


def _ensemble_name(others: Sequence[LoadedModel]) -> str:
    """The number of models of an ensemble and a checksum of the others, for file names."""
    if not others:
        return ""
    weights = " ".join(other.checkpoint.checksums[MODEL] for other in others)
    return f"-ensemble{len(others) + 1}-{hashlib.blake2b(weights.encode(), digest_size=2).hexdigest()}"


def _exact_by_length(
    sources: list[str], hypotheses: list[str], references: list[str]
) -> dict[int, tuple[int, float]]:
    groups: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True):
        groups[len(source.split())].append((hypothesis, reference))
    return {
        length: (len(pairs), exact_match(*zip(*pairs, strict=True)))
        for length, pairs in sorted(groups.items())
    }


def write_json(evaluation: Evaluation, file: Path) -> None:
    """Write the evaluation as JSON, with the signatures of the scores; an existing ``file`` is replaced."""
    # The files are paths, which JSON does not support.
    text = json.dumps(asdict(evaluation), indent=2, ensure_ascii=False, default=str)
    write_atomically(file, text + "\n")


def show_in_tensorboard(evaluation: Evaluation, run: RunDirectory) -> None:
    """Write the scores at the checkpoint's step, and a table of the worst sentences.

    They are in a separate folder, which TensorBoard shows as a separate run, so that resumed training does
    not touch them. Evaluating the same setting again replaces them.
    """
    folder = run.evaluation_dir(evaluation.setting)
    for old in folder.glob("events.out.tfevents.*"):
        old.unlink(missing_ok=True)  # Another process may evaluate the same setting.
    literature = {} if evaluation.literature is None else {"literature_bleu": evaluation.literature}
    scores = evaluation.scores | literature
    values = {key: score.value for key, score in scores.items()} | {"exact": evaluation.exact}
    if evaluation.analysis is not None:
        values["length_ratio"] = evaluation.analysis.length_ratio
    scores_table = markdown_table(
        ("score", "value", "95 % interval", "signature"),
        [
            (
                score.name,
                f"{score.value:.2f}",
                "{:.2f} to {:.2f}".format(*score.interval) if score.interval else "",
                markdown_text(score.signature),
            )
            for score in scores.values()
        ],
    )
    worst_table = markdown_table(
        ("sentence", "chrF2++", "source", "translation", "reference"),
        [
            (
                str(sentence.number),
                f"{sentence.chrfpp:.1f}",
                *map(markdown_text, (sentence.source, sentence.translation, sentence.reference)),
            )
            for sentence in evaluation.worst
        ],
    )
    with SummaryWriter(str(folder)) as writer:
        for key, value in values.items():
            writer.add_scalar(f"evaluation/{key}", value, evaluation.step)
        writer.add_text("evaluation/scores", scores_table, evaluation.step)
        writer.add_text("evaluation/worst", worst_table, evaluation.step)
