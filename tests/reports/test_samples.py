"""The best and the worst translations of a report, by the scores of sacreBLEU."""

from itertools import pairwise

import pytest
import sacrebleu
import torch

from mt.config.load import load_config
from mt.data.corpus import load_split
from mt.inference.loaded_model import load_model
from mt.inference.model_translator import ModelTranslator
from mt.reports.samples import rank_samples
from mt.run_directory import RunDirectory


def test_the_worst_and_the_best_of_sentences_from_all_over_the_split(
    trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = load_split(load_config(trained.config_file).data, "validation")
    references = dict(zip(rows["src"], rows["tgt"], strict=True))
    sources = list(references)
    # A third of them is right; the others lack one word or two.
    made = {
        source: " ".join(reference.split()[place % 3 :])
        for place, (source, reference) in enumerate(references.items())
    }
    asked: list[str] = []

    def translate(texts: list[str], **options: object) -> list[str]:
        asked.extend(texts)
        return [made[text] for text in texts]

    loaded = load_model(trained, "best")
    translator = ModelTranslator.from_loaded(loaded, device=torch.device("cpu"))
    monkeypatch.setattr(translator, "translate", translate)
    found = rank_samples(trained, loaded, translator, num_sentences=5)

    places = [*map(sources.index, asked), len(sources)]
    gaps = [later - earlier for earlier, later in pairwise(places)]
    assert (places[0], len(gaps), found.num_sentences) == (0, 5, 5)
    assert max(gaps) - min(gaps) <= 1

    metric = sacrebleu.CHRF(word_order=2)
    scores = {text: metric.sentence_score(made[text], [references[text]]).score for text in asked}
    wrong = sorted(scores[text] for text in asked if made[text] != references[text])
    assert [each.chrfpp for each in found.worst] == wrong[:5]
    others = set(asked) - {each.source for each in found.worst}
    assert [each.chrfpp for each in found.best] == sorted(map(scores.__getitem__, others), reverse=True)[:5]
    for each in (*found.worst, *found.best):
        assert sources[each.number - 1] == each.source
        assert (each.translation, each.reference) == (made[each.source], references[each.source])
