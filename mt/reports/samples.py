"""The best and the worst translations of validation sentences."""

from dataclasses import dataclass

from mt.data.corpus import evenly_spaced
from mt.errors import DataError
from mt.evaluation.analysis import ScoredSentence, sentence_scores
from mt.evaluation.evaluate import translate_lines
from mt.evaluation.test_set import load_evaluation_set, was_trained_with_another
from mt.inference.loaded_model import LoadedModel
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory

# The most of the best, and of the worst, translations.
_NUM_SHOWN = 5


@dataclass(frozen=True)
class RankedSamples:
    """Some of a model's translations, ranked by the chrF2++ of each sentence."""

    data: str
    checkpoint: str
    num_sentences: int
    num_in_split: int
    best: list[ScoredSentence]
    """The best first; of equally good ones, the longest first."""
    worst: list[ScoredSentence]
    """The worst first; none of them equals its reference."""


def rank_samples(
    run: RunDirectory, loaded: LoadedModel, translator: ModelTranslator, *, num_sentences: int
) -> RankedSamples:
    """Translate ``num_sentences`` of the validation split, spread evenly, by greedy search, and rank them."""
    validation = load_evaluation_set(loaded.config, "validation")
    if was_trained_with_another(run, validation):
        raise DataError(
            f"the validation split of {loaded.config.data.path} has changed since {run.path} was trained, so "
            "the model may have been trained on some of its sentences. Restore the old files."
        )
    count = len(validation.sources)
    indices = evenly_spaced(count, num_sentences).tolist()
    texts = [(index + 1, validation.sources[index], validation.references[index]) for index in indices]
    numbers, sources, references = zip(*texts, strict=True)
    translations = translate_lines(translator, validation, sources)
    scores = sentence_scores(translations, references)
    samples = map(ScoredSentence, numbers, sources, translations, references, scores)
    ranked = sorted(samples, key=lambda sample: (-sample.chrfpp, -len(sample.reference), sample.number))
    wrong = [sample for sample in reversed(ranked) if sample.translation != sample.reference]
    worst = wrong[: min(_NUM_SHOWN, (len(ranked) + 1) // 2)]
    best = [sample for sample in ranked if sample not in worst][:_NUM_SHOWN]
    return RankedSamples(validation.where, loaded.checkpoint.name, len(ranked), count, best, worst)
