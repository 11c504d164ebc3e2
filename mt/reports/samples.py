"""The best and the worst translations of validation sentences."""

from dataclasses import dataclass
from itertools import chain, zip_longest

from mt.display import progress_bar
from mt.errors import DataError
from mt.evaluation.analysis import ScoredSentence, sentence_scores
from mt.evaluation.evaluate import setting_name
from mt.evaluation.test_set import (
    EvaluationSet,
    load_evaluation_set,
    read_lines,
    was_trained_with_another,
)
from mt.inference.loaded_model import LoadedModel
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory

# About 25 tokens; beyond that, a map has more cells than can be distinguished on a phone.
_MAX_DRAWN_CHARACTERS = 120
# The most of the best, and of the worst, translations.
_NUM_SHOWN = 5


@dataclass(frozen=True)
class RankedSamples:
    """Some of a model's translations, ranked by the chrF2++ of each sentence."""

    data: str
    """The corpus and the split."""
    checkpoint: str
    num_sentences: int
    """The sentences that were ranked."""
    num_in_split: int
    best: list[ScoredSentence]
    """The best first; of equally good ones, the longest first."""
    worst: list[ScoredSentence]
    """The worst first; none of them equals its reference."""

    @property
    def short(self) -> list[ScoredSentence]:
        """Those that are short enough to draw what every token attends to: the worst and the best in turn."""
        in_turn = chain.from_iterable(zip_longest(self.worst, self.best))
        return [each for each in in_turn if each is not None and _is_short(each)]


def rank_samples(
    run: RunDirectory, loaded: LoadedModel, translator: ModelTranslator, *, num_sentences: int
) -> RankedSamples:
    """Rank translations of the validation split, found by greedy search.

    If an evaluation of this checkpoint has left its translations in the run, all of them are used. Otherwise
    ``num_sentences`` are translated, spread evenly over the split.

    Args:
        run: The run.
        loaded: The checkpoint's model.
        translator: A translator with that model.
        num_sentences: How many sentences to translate at most.
    """
    validation = load_evaluation_set(loaded.config, "validation")
    if validation.fingerprint and was_trained_with_another(run, "validation", validation.fingerprint):
        raise DataError(
            f"the validation split of {loaded.config.data.path} has changed since {run.path} was trained, so "
            "the model may have been trained on some of its sentences. Restore the old files."
        )
    count = len(validation.sources)
    places = list(range(count))
    translations = _evaluated(run, loaded, validation)
    if translations is None:
        num = min(num_sentences, count)
        places = [count * place // num for place in range(num)]
        with progress_bar(num, unit="sentences", description="translating") as bar:
            translations = translator.translate([validation.sources[i] for i in places], advance=bar.update)
    references = [validation.references[i] for i in places]
    scores = sentence_scores(translations, references)
    ranked = sorted(
        (
            ScoredSentence(place + 1, validation.sources[place], translation, reference, score)
            for place, translation, reference, score in zip(
                places, translations, references, scores, strict=True
            )
        ),
        key=lambda each: (-each.chrfpp, -len(each.reference), each.number),
    )
    wrong = [each for each in reversed(ranked) if each.translation != each.reference]
    worst = wrong[: min(_NUM_SHOWN, (len(ranked) + 1) // 2)]
    best = [each for each in ranked if each not in worst]
    return RankedSamples(
        validation.where,
        loaded.checkpoint.name,
        len(ranked),
        count,
        best[:_NUM_SHOWN],
        worst,
    )


def _is_short(each: ScoredSentence) -> bool:
    texts = each.source, each.translation
    return all(text.strip() and len(text) <= _MAX_DRAWN_CHARACTERS for text in texts)


def _evaluated(run: RunDirectory, loaded: LoadedModel, validation: EvaluationSet) -> list[str] | None:
    """The translations of the whole split that `mt.evaluation.evaluate` has written, if there are any."""
    file = run.hypotheses_file(setting_name(loaded.checkpoint, validation, None))
    try:
        lines = read_lines(file)
    except DataError:
        return None
    return lines if len(lines) == len(validation.sources) else None
