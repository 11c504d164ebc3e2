"""The way from the command to the optimizer is short."""

import inspect
import sys
from pathlib import Path

import pytest
import torch

import mt
from mt.__main__ import main

PACKAGE = Path(mt.__file__).parent


def test_at_most_five_of_our_own_frames_lead_to_the_step_of_the_optimizer(
    tiny_config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks: list[list[str]] = []
    take_step = torch.optim.AdamW.step

    def step(*arguments: object, **named: object) -> object:
        frames = [frame for frame in inspect.stack(0) if Path(frame.filename).is_relative_to(PACKAGE)]
        stacks.append([f"{Path(frame.filename).stem}.{frame.function}" for frame in reversed(frames)])
        return take_step(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    more = ["--set", "training.max_steps=1", "--run", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", ["mt", "train", "--config", str(tiny_config_file), *more])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert stacks == [
        ["__main__.main", "train.train", "run.run_training", "loop.train", "train_state.launch"]
    ]
