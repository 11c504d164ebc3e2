"""A run of several directions is scored in each of them, one at a time."""

from pathlib import Path

import pytest
import sacrebleu

from mt.config.load import load_config
from mt.errors import ConfigError
from mt.evaluation.compare import run_comparison
from mt.evaluation.evaluate import run_evaluation
from mt.evaluation.literature import literature_score
from mt.evaluation.test_set import load_evaluation_set
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from mt.sides import Sides

BACK = Sides("de", "en")


def lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def test_each_direction_is_translated_and_scored_with_its_own_languages(
    several: RunDirectory, tiny_corpus: Path
) -> None:
    for src, tgt in (("en", "de"), BACK):
        result = run_evaluation(several, tgt=tgt, device="cpu", literature=literature_score)
        sources, references = (lines_of(tiny_corpus / f"test.{side}") for side in (src, tgt))
        hypotheses = lines_of(result.hypotheses_file)
        translator = Translator.from_run(several, device="cpu", precision="float32", tgt=tgt)
        assert hypotheses == translator.translate(sources)
        assert result.scores["bleu"].value == sacrebleu.corpus_bleu(hypotheses, [references]).score
        assert f"|lang:{tgt}|" in result.scores["literature_bleu"].signature
        assert result.data == f"{tiny_corpus}, {src} to {tgt}, test"


def test_other_data_is_read_with_the_languages_of_the_direction(
    several: RunDirectory, tmp_path: Path
) -> None:
    config = load_config(several.config_file)
    table = tmp_path / "news.tsv"
    table.write_text("en\tde\nGo.\tGeh.\n", encoding="utf-8")
    back = load_evaluation_set(config, "test", path=str(table), direction=BACK)
    assert (back.sources, back.references, back.where) == (["Geh."], ["Go."], f"{table}, de to en")
    assert back.name.startswith("news.tsv-de-en-")


def test_a_run_of_one_direction_is_compared_in_that_of_another_run(
    several: RunDirectory, trained: RunDirectory, tiny_corpus: Path
) -> None:
    # The first run says what is translated.
    result = run_comparison([trained.path, several.path], device="cpu")
    sources = lines_of(tiny_corpus / "test.en")
    translator = Translator.from_run(several, device="cpu", precision="float32", tgt="de")
    assert lines_of(Path(result.systems[1])) == translator.translate(sources)
    assert translator.translate(sources) != translator.into("loud").translate(sources)
    with pytest.raises(ConfigError, match="tiny does not translate de to en, only en to de"):
        run_comparison([several.path, trained.path], tgt="en", device="cpu")
    assert not list(several.path.glob("hypotheses.*de-en*"))
