"""The scores are sacreBLEU's, of the very file that is left."""

from collections.abc import Callable
from pathlib import Path

import pytest
import sacrebleu
import torch

from mt.config.config import Config
from mt.data.sources import builtin
from mt.data.sources.source import Split
from mt.errors import DataError
from mt.pipeline.evaluate import run_evaluation
from mt.pipeline.train import run_training
from mt.run_directory import RunDirectory

CPU = torch.device("cpu")


@pytest.mark.parametrize("split", ["validation", "test", "train"])
def test_scores_are_those_of_the_file_that_is_written(
    split: Split, trained: RunDirectory, tiny_corpus: Path
) -> None:
    result = run_evaluation(trained, split=split, checkpoint="step_0000100", device=CPU)
    hypotheses = trained.hypotheses_file(split).read_text(encoding="utf-8").split("\n")[:-1]
    references = (tiny_corpus / f"{split}.de").read_text(encoding="utf-8").split("\n")[:-1]
    assert result.num_sentences == len(hypotheses) == len(references)
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    assert result.scores["bleu"].value == bleu.corpus_score(hypotheses, [references]).score
    assert result.scores["chrf"].value == chrf.corpus_score(hypotheses, [references]).score
    assert result.scores["bleu"].signature == str(bleu.get_signature())
    assert result.scores["chrf"].signature == str(chrf.get_signature())
    num_exact = sum(map(str.__eq__, hypotheses, references))
    assert result.exact == pytest.approx(100 * num_exact / len(references))
    assert num_exact > 0
    assert result.exact_by_length is None


def test_every_line_of_another_corpus_is_scored(trained: RunDirectory, tmp_path: Path) -> None:
    # An empty line, one of several sentences, and a sentence that is three times too long.
    other = tmp_path / "other"
    other.mkdir()
    sources = ["Anna sees milk.", "", "Anna sees milk. " * 9, "the car " * 20]
    for split in ("train", "validation", "test"):
        (other / f"{split}.en").write_text("".join(line + "\n" for line in sources))
        (other / f"{split}.de").write_text("Anna sieht Milch.\n" * len(sources))
    result = run_evaluation(trained, split="test", checkpoint="best", device=CPU, data_path=str(other))
    # Beside the translations of the run's own test split, not over them.
    assert result.hypotheses_file == trained.hypotheses_file("other.test")
    hypotheses = result.hypotheses_file.read_text(encoding="utf-8").split("\n")[:-1]
    assert result.num_sentences == len(hypotheses) == 4
    assert hypotheses[:2] == ["Anna sieht Milch.", ""]
    assert hypotheses[2].count("Milch") == 9


def test_a_corpus_of_one_file_is_scored_whole(trained: RunDirectory, tmp_path: Path) -> None:
    file = tmp_path / "news.jsonl"
    file.write_text('{"en": "Anna sees milk.", "de": "Anna sieht Milch."}\n' * 30)
    result = run_evaluation(trained, split="test", checkpoint="best", device=CPU, data_path=str(file))
    assert result.num_sentences == 30


def test_reversing_is_scored_by_length(
    make_config: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"train": 50, "validation": 5, "test": 40}
    monkeypatch.setitem(builtin.NUM_PAIRS, builtin.REVERSE, sizes)
    run = RunDirectory(tmp_path)
    run_training(make_config("data.path=builtin:reverse", "data.max_length=32", "training.max_steps=1"), run)
    result = run_evaluation(run, split="test", checkpoint="latest", device=CPU)
    assert result.exact_by_length is not None
    assert list(result.exact_by_length) == sorted(result.exact_by_length)
    assert set(result.exact_by_length) <= set(range(4, 17))
    assert sum(count for count, _ in result.exact_by_length.values()) == result.num_sentences == 40
    by_hand = sum(count * exact for count, exact in result.exact_by_length.values()) / 40
    assert result.exact == pytest.approx(by_hand)


def test_a_corpus_that_is_gone(trained: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file or folder"):
        run_evaluation(trained, split="test", checkpoint="best", device=CPU, data_path=str(tmp_path / "no"))
    assert not trained.hypotheses_file("test").exists()
