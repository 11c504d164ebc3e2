"""What comes before measuring: the corpus as ids, first weights, and a small model that can translate."""

import hashlib
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from mt.config.data import DataConfig, TokenizerConfig
from mt.data.batches.batch import pad
from mt.data.batches.dataset import encode_pairs
from mt.data.batches.sampler import epoch_batches
from mt.data.corpus import load_corpus
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import train_tokenizer
from mt.device import Precision, choose_device
from mt.evaluation.scores import score_translations
from mt.inference.model_translator import ModelTranslator
from mt.search.greedy import greedy_search
from mt.search.hypothesis import length_limit
from mt.search.request import SearchRequest
from mt.special_tokens import EOS_ID, SPECIAL_TOKENS
from mt.training.loss import Objective
from mt.training.train_state import TrainState
from mt.transformer.transformer import Transformer
from scripts.benchmark.mt_config import run_config
from scripts.benchmark.session import Channel, Job, serve
from scripts.benchmark.sides.mt_train import adam, batch_stream, new_model
from scripts.benchmark.sides.plain_loop import LABEL_SMOOTHING
from scripts.benchmark.workload import Description, Ragged, Workload

MAX_LENGTH = 128
VOCABULARY_SIZE = 8_000
SEED = 1
LEARNING_BATCH_TOKENS = 1_024
LEARNING_RATE, WARMUP_STEPS = 1e-3, 400
STEPS_BETWEEN_SCORES, MOST_STEPS, NUM_SCORED = 250, 10_000, 1_000


def learning_rate(step: int) -> float:
    """Warm-up, then the inverse square root."""
    return LEARNING_RATE * min(step / WARMUP_STEPS, math.sqrt(WARMUP_STEPS / step))


class Preparation:
    """Makes the files that the other processes read."""

    def __init__(self, job: Job) -> None:
        self._job = job

    @property
    def _candidates(self) -> Path:
        """Pairs whose sources may be translated: those of the test, then of the validation split."""
        return self._job.folder / "candidates.json"

    def make_workload(
        self, *, data: str, src: str, tgt: str, num_pairs: int, batch_tokens: int
    ) -> Mapping[str, Any]:
        """Tokenizers, ids, batches, and the same as text for the toolkits that need text."""
        corpus = load_corpus(DataConfig(path=data, src=src, tgt=tgt, num_train_pairs=num_pairs))
        train = corpus.train
        bpe = TokenizerConfig(kind="bpe", max_size=VOCABULARY_SIZE)
        sides = (train_tokenizer(list(train["src"]), bpe), train_tokenizer(list(train["tgt"]), bpe))
        pairs, _ = encode_pairs(train, *sides, max_length=MAX_LENGTH)
        for tokenizer, name in zip(sides, ("src", "tgt"), strict=True):
            tokenizer.save(self._job.folder / f"{name}_tokenizer.json")
        candidates = [
            [*corpus.test["src"], *corpus.validation["src"]],
            [*corpus.test["tgt"], *corpus.validation["tgt"]],
        ]
        self._candidates.write_text(json.dumps(candidates, ensure_ascii=False), encoding="utf-8")
        batches = epoch_batches(
            pairs.src.lengths, pairs.tgt.lengths, batch_tokens=batch_tokens, seed=SEED, epoch=0
        )
        description = Description(
            # Not the path, which says where on this machine, but the corpus.
            corpus=f"{Path(data).name} {src}-{tgt}",
            src_vocabulary_size=sides[0].size,
            tgt_vocabulary_size=sides[1].size,
            batch_tokens=batch_tokens,
            seed=SEED,
            max_length=MAX_LENGTH,
            num_pairs=len(pairs),
            mean_tgt_length=float(np.mean(pairs.tgt.lengths)),
        )
        src_ids, tgt_ids = (
            Ragged(side.ids.astype(np.int64), side.offsets) for side in (pairs.src, pairs.tgt)
        )
        Workload(description, src_ids, tgt_ids, Ragged.of(list(batches))).save(self._job.folder)
        for name, ragged, size in (("src", src_ids, sides[0].size), ("tgt", tgt_ids, sides[1].size)):
            lines = [" ".join(map(str, ragged[i].tolist())) for i in range(len(ragged))]
            (self._job.folder / f"train.{name}").write_text("\n".join(lines) + "\n")
            words = map(str, range(len(SPECIAL_TOKENS), size))
            (self._job.folder / f"vocabulary.{name}").write_text("\n".join(words) + "\n")
        return vars(description)

    def first_weights(self) -> Mapping[str, Any]:
        """The weights that all sides begin with."""
        model = new_model(self._job.size, self._job.workload.description)
        save_file(model.weights(), self._job.first_weights)
        return {}

    def learn(self, *, bleu: float, num_sentences: int) -> Mapping[str, Any]:
        """Train a model to this quality, or take the one that an earlier run trained so.

        Raises:
            RuntimeError: If it does not get there in `MOST_STEPS` steps.
        """
        workload = self._job.workload
        recipe = [vars(workload.description), vars(self._job.size), bleu, num_sentences, LEARNING_RATE]
        recipe += [WARMUP_STEPS, LEARNING_BATCH_TOKENS, self._candidates.read_text(encoding="utf-8")]
        key = hashlib.sha256(json.dumps(recipe).encode()).hexdigest()
        facts_file = self._job.folder / "decoding.json"
        if facts_file.exists():
            facts: dict[str, Any] = json.loads(facts_file.read_text())
            if facts.get("key") == key:
                return facts
        model, facts = self._trained_to(bleu, workload)
        save_file(model.weights(), self._job.folder / "decoding.safetensors")
        facts |= {"key": key, **self._choose_sentences(model, num_sentences)}
        facts_file.write_text(json.dumps(facts))
        return facts

    def _trained_to(self, bleu: float, workload: Workload) -> tuple[Transformer, dict[str, Any]]:
        device = choose_device(self._job.device)
        model = new_model(self._job.size, workload.description).to(device)
        stream = batch_stream(workload, batch_tokens=LEARNING_BATCH_TOKENS)
        train_state = TrainState(
            Objective(model),
            adam(model),
            Precision("auto", device),
            learning_rate,
            label_smoothing=LABEL_SMOOTHING,
            clip_norm=1.0,
        )
        reached = 0.0
        for step in range(1, MOST_STEPS + 1):
            batches = stream.take(train_state.position)
            train_state.step(batches._replace(micro_batches=[b.to(device) for b in batches.micro_batches]))
            if step % STEPS_BETWEEN_SCORES == 0:
                reached = self._bleu(model)
                print(f"step {step}: BLEU {reached:.1f}", file=sys.stderr, flush=True)
                if reached >= bleu:
                    return model.cpu(), {"steps": step, "bleu": reached}
        raise RuntimeError(f"BLEU {reached:.1f} after {MOST_STEPS:,} steps, and not {bleu:g}")

    def _bleu(self, model: Transformer) -> float:
        """BLEU of the first candidates, which greedy search translates."""
        sources, references = (
            side[:NUM_SCORED] for side in json.loads(self._candidates.read_text(encoding="utf-8"))
        )
        config = run_config(self._job.size, max_length=MAX_LENGTH)
        sides = [Tokenizer.load(self._job.folder / f"{side}_tokenizer.json") for side in ("src", "tgt")]
        lines = ModelTranslator(config, model, sides[0], sides[1]).translate(sources)
        return float(score_translations(lines, references)["bleu"].value)

    @torch.inference_mode()
    def _choose_sentences(self, model: Transformer, num_sentences: int) -> dict[str, int]:
        """Write test sentences, then validation sentences; return how many of those tried did not end.

        Each program limits the length of a translation in its own way, so that one which does not end by
        itself would cost each side another number of steps.
        """
        tokenizer = Tokenizer.load(self._job.folder / "src_tokenizer.json")
        texts = json.loads(self._candidates.read_text(encoding="utf-8"))[0][: 2 * num_sentences]
        chosen: list[str] = []
        left_out: list[str] = []
        for start in range(0, len(texts), 100):
            some = texts[start : start + 100]
            sentences = tokenizer.encode_batch(some)
            src_ids = pad(sentences, last=EOS_ID)
            limits = [length_limit(len(ids) + 1, MAX_LENGTH) for ids in sentences]
            hypotheses = greedy_search(model, SearchRequest(src_ids, limits))
            for text, found in zip(some, hypotheses, strict=True):
                (chosen if found.finished else left_out).append(text)
            if len(chosen) >= num_sentences:
                break
        # A model that has hardly learnt ends nothing: better long translations than none.
        sentences_to_translate = (chosen + left_out)[:num_sentences]
        path = self._job.folder / "decoding_texts.json"
        path.write_text(json.dumps(sentences_to_translate, ensure_ascii=False), encoding="utf-8")
        return {"left_out": len(left_out), "tried": len(chosen) + len(left_out)}


def run(channel: Channel, job: Job) -> None:
    preparation = Preparation(job)
    serve(
        channel,
        {
            "make_workload": preparation.make_workload,
            "first_weights": preparation.first_weights,
            "learn": preparation.learn,
        },
    )
