"""`mt init --init-from`: a config that adapts a run to other data, or trains it further on its own."""

import json
import time
from dataclasses import replace
from pathlib import Path

from mt.config.data import OWN, DataConfig
from mt.config.load import load_config
from mt.config.model import InitFromConfig
from mt.config.sources import CorpusConfig, SourceConfig
from mt.config.write import changed_options
from mt.data.corpus import load_corpus
from mt.data.suspicions import small_splits
from mt.errors import MtError
from mt.preflight import rule
from mt.preflight.init import ALWAYS, Proposal
from mt.preflight.plan import fit
from mt.preflight.text import most_unknown
from mt.preflight.trial import measure, take_sample
from mt.run_directory import RunDirectory, as_run
from mt.sides import Sides
from mt.training.init_from import inherit_from_origin
from mt.training.schedule import learning_rate

MINUTES = 5.0
"""A budget where none is given."""
RATE = 0.25
"""The peak of the learning rate, as a share of that of the run to begin from."""
OLD_SHARE = 1 / 2
"""Of what is shown, the share that comes from the old data, against forgetting."""


def propose_adaptation(origin: InitFromConfig, data: DataConfig, minutes: float | None) -> Proposal:
    """Propose a config that begins with the weights of ``origin`` and trains on ``data``."""
    run = as_run(str(origin.run)).require()
    old = load_config(run.config_file)
    is_of_old_text, notes = Path(data.path).resolve() == Path(old.data.path).resolve(), list[str]()
    is_new = not is_of_old_text or data.directions != old.data.directions
    if is_new:
        if not {*data.directions} <= {*old.data.directions}:
            # What the old run has held out is then not trained on now, either.
            data = data.model_copy(update={"held_out_fraction": old.data.held_out_fraction})
        sources, note = _old_sources(old.data, data, run, len(load_corpus(data, old.cleaning).train))
        # The weights say what is shown.
        data = data.model_copy(update={"sources": {**data.sources, **sources}, "temperature": 1.0})
        notes = [note]
    started = time.perf_counter()
    corpus = load_corpus(data, old.cleaning)
    load_seconds = time.perf_counter() - started
    peak = learning_rate(max(1, old.schedule.warmup_steps), old.schedule, d_model=old.model.d_model)
    extends = is_new and old.tokenizer.kind == "word"
    has_mean = len(data.directions) > 1 and old.validation.metric != "loss"
    over = "all" if has_mean else "own"
    config = inherit_from_origin(
        old.model_copy(update={"data": data, "init_from": origin}).with_options(
            tokenizer={"extend": extends},
            schedule={"kind": "constant", "learning_rate": float(f"{RATE * peak:.2g}")},
            training={
                "max_steps": 1,
                "max_epochs": None,
                "max_minutes": None,
                "stages": {},
                "ema_decay": rule.ema_decay(0),
                "muon": False,
                "lexicon_start": False,
                # The old run may have begun on another machine.
                "precision": "mixed",
                "compile": "auto",
            },
            validation={"patience": None, "over": over},
        ),
        None,
    )
    sample = take_sample(corpus, config, load_seconds)
    if minutes is None:
        minutes = MINUTES
        notes.append("This budget is a proposal.")
    size = rule.batch_size(0, sample.corpus_tokens, sample.config.data.max_length)
    size = min(old.training.batch_tokens, size)
    sample = replace(sample, config=sample.config.with_options(training={"batch_tokens": size}))
    plan = fit(sample.config, minutes, measure(sample))
    config = plan.config
    grown = " after adding those of the new text" if extends else ""
    summary = [
        f"from     {origin.run}@{config.init_from.checkpoint}, {plan.pace.num_parameters:,} parameters",
        f"passes   {plan.num_passes:.1f}, about {plan.seconds / 60:.1f} minutes on this machine",
        f"steps    {plan.num_steps:,} of {config.training.batch_tokens:,} tokens, with a peak learning "
        f"rate of {config.schedule.learning_rate:g} instead of {peak:.2g}",
        f"unknown  up to {most_unknown(sample.text):.1%} of the words in the held-out text{grown}",
        *(f"warning  {warning}" for warning in small_splits(corpus)),
    ]
    head = [
        *summary,
        *notes,
        plan.note,
        "The shape of the model and all else that is not here is taken over.",
    ]
    keys = changed_options(config).union(ALWAYS.split()) - {"init_from.sha256"}
    keys = {key for key in keys if not key.startswith(("model.", "tokenizer."))}
    keys |= {"model.dropout", "init_from.checkpoint", *(["tokenizer.extend"] if extends else [])}
    return Proposal.of(config, keys, head, summary)


def _old_sources(
    old: DataConfig, data: DataConfig, run: RunDirectory, num_pairs: int
) -> tuple[dict[str, SourceConfig], str]:
    """Some of the old data as sources beside ``num_pairs`` new ones, and what it does."""
    try:
        shares = load_corpus(old).shares
        num_old = json.loads(run.read_corpus_report())["splits"]["train"]["pairs"]
    except (MtError, OSError, ValueError, LookupError) as error:
        return {}, (
            f"The old data cannot be mixed in, so the model may forget them: {error} To mix in other text of "
            "that kind, name it in data.sources."
        )
    # In proportion to each other, as often as the old run has shown them.
    num_shown = sum(share.num_pairs * share.weight for share in shares)
    usual = num_shown / sum(share.num_pairs for share in shares)
    factor = min(1.0, OLD_SHARE / (1 - OLD_SHARE) * num_pairs / (usual * num_old))
    sources: dict[str, SourceConfig] = {}
    for (name, origin), share in zip({OWN: old, **old.sources}.items(), shares, strict=True):
        direction = Sides(origin.src or old.src, origin.tgt or old.tgt)
        if origin.path == data.path and direction in data.directions:
            continue
        given = origin.model_dump(include={*CorpusConfig.model_fields})
        languages = Sides(None, None) if direction == data.direction else direction
        given |= {**languages._asdict(), "weight": float(f"{factor * share.weight:.2g}")}
        sources["old" if name == OWN else f"old-{name}"] = SourceConfig.model_validate(given)
    if not sources:
        return {}, "The old data is part of the new."
    weight = float(f"{usual * factor:.2g}")
    part = weight * num_old / (weight * num_old + num_pairs)
    return sources, (
        f"Against forgetting, {part:.0%} of the pairs that are shown are old ones "
        f"(data.sources.{', '.join(sources)}: {num_old:,} with weight {weight:g}). "
        f"{'All' if old.sources else 'Both'} validation splits are scored."
    )
