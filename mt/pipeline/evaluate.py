"""`mt evaluate`: translate a split of the corpus and score it."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch

from mt.atomic_files import write_text_atomically
from mt.data.corpus import load_split
from mt.data.sources.source import Split
from mt.metrics import Score, exact_match, score_translations
from mt.pipeline.translator import Beam, Translator
from mt.run_directory import RunDirectory


@dataclass(frozen=True)
class Evaluation:
    """How well a run translates a split."""

    num_sentences: int
    hypotheses_file: Path
    """The translations, one a line."""
    scores: dict[str, Score]
    exact: float
    """Percentage of translations that equal their reference."""
    exact_by_length: dict[int, tuple[int, float]] | None
    """For `builtin:reverse`, where length is what is hard: sentences of so many words, percentage exact."""


def run_evaluation(
    run: RunDirectory,
    *,
    split: Split,
    checkpoint: str,
    device: torch.device,
    data_path: str | None = None,
    beam: Beam | None = None,
) -> Evaluation:
    """Translate every line of a split, score them all, and write the translations into the run directory.

    Args:
        run: The run.
        split: train, validation or test.
        checkpoint: best, latest, or a checkpoint's name.
        device: Where to compute.
        data_path: Another corpus than the run's own, in the same languages; a single file is taken whole.
        beam: Search with a beam; None searches greedily.

    Raises:
        MtError: If the run, the checkpoint or the corpus cannot be used.
    """
    translator = Translator.from_run(run, checkpoint=checkpoint, device=device)
    data = translator.config.data
    if data_path is not None:
        data = data.model_copy(update={"path": data_path, "name": None, "revision": None})
    pairs = load_split(data, split, undivided=data_path is not None)
    sources, references = list(pairs["src"]), list(pairs["tgt"])
    hypotheses = translator.translate(sources, way=beam, show_progress=True)
    hypotheses_file = run.hypotheses_file(split if data_path is None else f"{Path(data_path).stem}.{split}")
    write_text_atomically(hypotheses_file, "".join(line + "\n" for line in hypotheses))
    return Evaluation(
        len(sources),
        hypotheses_file,
        score_translations(hypotheses, references),
        exact_match(hypotheses, references),
        _exact_by_length(sources, hypotheses, references) if data.path == "builtin:reverse" else None,
    )


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
