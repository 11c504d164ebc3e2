"""A run with each kind of tokenizer, which afterwards needs nothing outside its folder."""

import logging
from pathlib import Path

import pytest
import torch

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from tests.training.steps import Training

CPU = torch.device("cpu")


@pytest.mark.parametrize(("kind", "shared"), [("char", "true"), ("bpe", "false"), ("bpe_metaspace", "true")])
def test_train_and_translate(train: Training, run: RunDirectory, kind: str, shared: str) -> None:
    kinds = f"tokenizer.kind={kind}", f"tokenizer.shared={shared}"
    train("training.max_steps=2", "data.max_length=100", *kinds)
    assert len(ModelTranslator.from_run(run, device=CPU).translate(["Anna sees a zorblax."])) == 1
    files = run.src_tokenizer_file, run.tgt_tokenizer_file
    assert (files[0].read_bytes() == files[1].read_bytes()) == (shared == "true")
    source = Tokenizer.load(files[0])
    assert source.decode(source.encode("Zorblax §")) == "Zorblax §"


def test_an_external_tokenizer_may_be_gone_afterwards(
    train: Training, tmp_path: Path, run: RunDirectory
) -> None:
    first = RunDirectory(tmp_path / "first")
    train("training.max_steps=1", "tokenizer.kind=bpe", "tokenizer.shared=true", into=first)
    theirs = tmp_path / "theirs.json"
    theirs.write_bytes(first.src_tokenizer_file.read_bytes())
    foreign = ["tokenizer.kind=file", f"tokenizer.path={theirs}", "tokenizer.shared=true"]
    train("training.max_steps=1", *foreign)
    theirs.unlink()
    train("training.max_steps=2", *foreign)
    assert run.tgt_tokenizer_file.read_bytes() == first.tgt_tokenizer_file.read_bytes()
    assert len(ModelTranslator.from_run(run, device=CPU).translate(["Anna sees milk."])) == 1


def test_lower_case_is_reported(train: Training, run: RunDirectory, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mt")
    train("training.max_steps=1", "tokenizer.lowercase=true")
    assert "the model reads and writes lower case only" in caplog.text
    (translation,) = ModelTranslator.from_run(run, device=CPU).translate(["ANNA SEES MILK."])
    assert translation == translation.lower()
