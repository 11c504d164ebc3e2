"""Beginning a run from the weights, tokenizers and shape of another run."""

import logging

import torch
from torch import Tensor, nn

from mt.checkpoint.record import MODEL
from mt.checkpoint.store import CheckpointStore
from mt.config.config import TRAINING_ONLY, Config
from mt.config.load import load_config
from mt.data.prepare import load_tokenizers
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import old_pieces
from mt.errors import ConfigError, RunError
from mt.inference.loaded_model import check_tokenizers
from mt.run_directory import RunDirectory, as_run
from mt.sides import SIDES, Sides
from mt.training.resume import has_begun
from mt.transformer.transformer import Transformer

LOG = logging.getLogger(__name__)

# For words that are added later, whatever the old text had.
_FOR_NEW_TEXT = {"extend", "min_frequency", "max_size", "max_lines"}
_NOISE = 0.1
"""Of a new row, as a share of the deviation of the old rows."""


def inherit_from_origin(config: Config, run: RunDirectory | None, *, restart: bool = False) -> Config:
    """The config with the shape of its origin, which a ``run`` that has begun knows itself."""
    origin = config.init_from
    if origin.run is None:
        return config
    source = load_config(run.config_file) if run is not None and run.exists and not restart else None
    if source is not None and source.init_from.run == origin.run:
        origin = source.init_from
    # A run that has begun from elsewhere is refused later, with all differences.
    elif source is None or run is None or not has_begun(run):
        directory = as_run(str(origin.run))
        if run is not None and directory.path.resolve() == run.path.resolve():
            raise ConfigError(f"init_from.run: {origin.run} is this run itself. Use another --run.")
        directory.require()
        checkpoint = CheckpointStore(directory.checkpoints_dir).require(origin.checkpoint)
        check_tokenizers(directory, checkpoint)
        source = load_config(directory.config_file)
        resolved = {"checkpoint": checkpoint.name, "sha256": checkpoint.checksums[MODEL]}
        origin = origin.model_copy(update=resolved)
    inherited = {"model": source.model.model_dump(exclude=TRAINING_ONLY)}
    if origin.sides == {"src", "tgt"}:
        inherited["tokenizer"] = source.tokenizer.model_dump(exclude=_FOR_NEW_TEXT)
        inherited["cleaning"] = source.cleaning.model_dump(include={"unicode_form", "invisible"})
    contradictions = []
    for section, keys in inherited.items():
        own = getattr(config, section)
        contradictions += [
            f"{section}.{key} is {getattr(own, key)} here, but {value} in {origin.run}, from which this run "
            "begins. Leave it out."
            for key, value in keys.items()
            if key in own.model_fields_set and getattr(own, key) != value
        ]
    if contradictions:
        raise ConfigError("\n".join(contradictions))
    return config.with_options(**inherited).model_copy(update={"init_from": origin})


def load_initial_weights(model: Transformer, config: Config, tokenizers: Sides[Tokenizer]) -> None:
    """Replace the initial weights of the chosen parts with those of the run to begin from."""
    origin = config.init_from
    run = as_run(str(origin.run))
    store = CheckpointStore(run.checkpoints_dir)
    checkpoint = store.require(origin.checkpoint)
    if checkpoint.checksums[MODEL] != origin.sha256:
        raise RunError(
            f"{checkpoint.folder} has other weights than when this run began. Start over with --restart, "
            "which moves the old run aside."
        )
    weights = store.load_model(checkpoint)
    before, sides = load_tokenizers(run), [side for side in SIDES if side in origin.sides]
    pieces = {side: old_pieces(getattr(before, side), getattr(tokenizers, side)) for side in sides}
    taken: dict[nn.Parameter, int] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name.partition(".")[0] in origin.chosen:
            taken[parameter] = parameter.numel()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter not in taken:
                continue
            if name not in weights:
                LOG.warning("%s has no %s: it begins as it was drawn", checkpoint.folder, name)
                continue
            old = weights[name]
            if len(old) < len(parameter):
                old = grown(old, pieces["src" if name.startswith("src") else "tgt"])
            parameter.copy_(old)
    count, total = sum(taken.values()), sum(parameter.numel() for parameter in model.parameters())
    new = "".join(f", {len(rows):,} new entries ({side})" for side, rows in pieces.items() if rows)
    LOG.info("beginning from %s: %s of %s parameters%s", checkpoint.folder, f"{count:,}", f"{total:,}", new)


def grown(rows: Tensor, pieces: list[list[int]]) -> Tensor:
    """``(V, D)`` with a row added for each of ``pieces``, the ids of old rows: ``(V + len(pieces), D)``."""
    new = torch.stack([rows[ids].mean(0) if ids else rows.mean(0) for ids in pieces])
    return torch.cat([rows, new + _NOISE * rows.std(0) * torch.randn_like(new)])
