"""The alignment that is read from attention: against what is known of the task, and by hand."""

from pathlib import Path

import pytest
import torch

from mt.attention_maps.alignment import AligningHeads, as_pharaoh, attention_maps
from mt.config.load import load_config
from mt.data.corpus import load_split
from mt.inference.labels import Labelled, Token
from mt.inference.model_translator import ModelTranslator, SentenceAttention
from mt.training.run import run_training

ROOT = Path(__file__).parent.parent.parent
CPU = torch.device("cpu")


@pytest.mark.slow
def test_reversing_is_aligned_along_the_anti_diagonal(tmp_path: Path) -> None:
    """With a model smaller than the recipe's, which is trained in half a minute."""
    overrides = [
        "model.num_encoder_layers=1", "model.num_decoder_layers=1", "model.d_model=64", "model.d_ff=128",
        "schedule.learning_rate=0.005", "schedule.warmup_steps=100", "schedule.total_steps=1600",
        "training.max_steps=1600", "training.batch_tokens=512", "training.device=cpu",
        "validation.every_steps=1600", "data.num_train_pairs=20000",
    ]  # fmt: skip
    config = load_config(ROOT / "configs/reverse.yaml", overrides)
    run_training(config, tmp_path / "run")
    translator = ModelTranslator.from_run(tmp_path / "run", device=CPU)
    maps = attention_maps(translator, load_split(config.data, "test")["src"][:100])
    num_right = num_tokens = 0
    for sentence in maps.sentences:
        places = maps.heads.weights(sentence)[:-1, :-1].argmax(-1).tolist()
        expected = range(len(sentence.src.ids) - 1, -1, -1)
        num_tokens += len(places)
        num_right += sum(place == right for place, right in zip(places, expected, strict=False))
    assert num_tokens >= 800
    assert num_right / num_tokens >= 0.95


def test_an_own_translation_may_be_read_as_more_tokens_than_the_model_has(
    translator: ModelTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = translator.facts.max_length
    monkeypatch.setattr(translator, "translate", lambda *_, **options: ["Milch " * (most + 5), "Milch"])
    long, short = attention_maps(translator, ["Anna buys milk.", "milk"]).sentences
    assert long.cross.shape[2:] == (most, len(long.src.tokens))
    assert [token.label for token in long.tgt.tokens] == ["Milch"] * (most - 1) + ["</s>"]
    assert [token.label for token in short.tgt.tokens] == ["Milch", "</s>"]


@pytest.mark.parametrize(
    ("num_layers", "guided", "expected"),
    [(6, 0.0, (4, 2)), (3, 0.0, (1, 2)), (2, 0.0, (1, 2)), (1, 0.0, (0, 2)), (3, 0.1, (2, 1))],
)
def test_the_last_layer_but_one_aligns_or_the_head_that_was_trained_to(
    num_layers: int, guided: float, expected: tuple[int, int], translator: ModelTranslator
) -> None:
    config = translator.config
    model = config.model.model_copy(update={"num_decoder_layers": num_layers})
    training = config.training.model_copy(update={"guided_alignment": guided})
    assert config.model_copy(update={"model": model, "training": training}).aligning_heads == expected


def test_subwords_are_joined_to_words_and_eos_is_left_out() -> None:
    src = [Token("un", 0), Token("able", 0), Token("to", 1), Token("go", 2), Token("</s>", None)]
    tgt = [Token("kann", 0), Token("nicht", 1), Token("ge", 2), Token("hen", 2), Token("</s>", None)]
    weights = torch.tensor(
        [
            [0.3, 0.3, 0.4, 0.0, 0.0],  # The two halves of a word have 0.6 together.
            [0.2, 0.2, 0.0, 0.0, 0.6],  # EOS has most, and is no word.
            [0.0, 0.0, 0.9, 0.1, 0.0],  # "ge" alone would go to "to";
            [0.0, 0.0, 0.0, 1.0, 0.0],  # "gehen" has 0.9 there, and 1.1 on "go".
            [0.0, 0.0, 0.0, 0.0, 1.0],
        ]
    )
    # Two heads, whose mean counts.
    cross = torch.stack([weights * 2, weights * 0])[None]
    nothing = torch.zeros(1, 1, 1, 1)
    sentence = SentenceAttention(1, Labelled([], src, ""), Labelled([], tgt, ""), nothing, nothing, cross)
    assert list(as_pharaoh(AligningHeads(0, 2), [sentence])) == ["0-0 0-1 2-2\n"]
    assert AligningHeads(0, 1).weights(sentence).equal(weights * 2)
