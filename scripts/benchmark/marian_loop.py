"""The plain training loop that a practitioner writes with Hugging Face: from columns of text to translations.

python -m scripts.benchmark.marian_loop --train FILE --test FILE --minutes 10 --out FILE

Marian with 3 + 3 layers of width 256, a joint BPE vocabulary of 8,000, batches of at most 1,024 target tokens
of sentences of like length, label smoothing 0.1, Adam with a peak rate of 1e-3 after 200 steps that falls
linearly to zero at the end of its minutes, in whichever of float32 and bf16 was faster in its first seconds.
The minutes count from the start of the process, so that reading and training the vocabulary are part of them.
"""

import argparse
import itertools
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import MarianConfig, MarianMTModel

BATCH_TOKENS = 1_024
BUCKET_BATCHES = 50
PEAK_RATE = 1e-3
WARMUP_STEPS = 200
PAD_ID, BOS_ID, EOS_ID, UNK_ID = range(4)


@dataclass(frozen=True)
class Pair:
    """A sentence pair in ids: the source ends with EOS, the target has neither BOS nor EOS."""

    src: list[int]
    tgt: list[int]


def read(path: Path, src: str, tgt: str) -> tuple[list[str], list[str]]:
    """The two columns of a file of JSON lines."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row[src] for row in rows], [row[tgt] for row in rows]


def train_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """A joint BPE vocabulary of 8,000."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=8_000, special_tokens=["<pad>", "<s>", "</s>", "<unk>"], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def endless_batches(pairs: list[Pair]) -> Iterator[list[Pair]]:
    """Epoch after epoch: shuffled, sorted by length within buckets of 50 batches, shuffled again."""
    draw = random.Random(1)
    while True:
        draw.shuffle(pairs)
        batches: list[list[Pair]] = []
        bucket = BUCKET_BATCHES * BATCH_TOKENS // 15
        for start in range(0, len(pairs), bucket):
            batch: list[Pair] = []
            for pair in sorted(
                pairs[start : start + bucket], key=lambda pair: (len(pair.tgt), len(pair.src))
            ):
                if (len(batch) + 1) * (len(pair.tgt) + 1) > BATCH_TOKENS:
                    batches.append(batch)
                    batch = []
                batch.append(pair)
            batches.append(batch)
        draw.shuffle(batches)
        yield from batches


def padded(rows: list[list[int]], value: int = PAD_ID) -> Tensor:
    """Rows of ids, padded on the right."""
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)


def build_model(vocabulary_size: int) -> MarianMTModel:
    """Marian in the small size."""
    return MarianMTModel(
        MarianConfig(
            vocab_size=vocabulary_size,
            d_model=256,
            encoder_layers=3,
            decoder_layers=3,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=1_024,
            decoder_ffn_dim=1_024,
            activation_function="relu",
            dropout=0.1,
            scale_embedding=True,
            max_position_embeddings=256,
            pad_token_id=PAD_ID,
            bos_token_id=BOS_ID,
            eos_token_id=EOS_ID,
            decoder_start_token_id=BOS_ID,
            forced_eos_token_id=None,
        )
    )


class Loop:
    """The model and its optimizer."""

    def __init__(self, model: MarianMTModel, *, ends_at: float) -> None:
        self.model = model.train()
        self.optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.num_steps = self.num_tokens = 0
        self.bf16 = False
        self._falls_from = self._ends_at = ends_at

    def step(self, batch: list[Pair]) -> None:
        """Train on a batch."""
        self.num_steps += 1
        rate = PEAK_RATE * min(self.num_steps / WARMUP_STEPS, self._share_of_fall_left())
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        src = padded([pair.src for pair in batch])
        labels = padded([[*pair.tgt, EOS_ID] for pair in batch], -100)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            logits = self.model(
                input_ids=src,
                attention_mask=src != PAD_ID,
                decoder_input_ids=padded([[BOS_ID, *pair.tgt] for pair in batch]),
                use_cache=False,
            ).logits
        loss = F.cross_entropy(
            logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100, label_smoothing=0.1
        )
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.num_tokens += sum(len(pair.tgt) + 1 for pair in batch)

    def _share_of_fall_left(self) -> float:
        now = time.time()
        if self.num_steps <= WARMUP_STEPS:
            self._falls_from = now
            return 1.0
        return max(self._ends_at - now, 0.0) / (self._ends_at - self._falls_from)

    def choose_precision(self, batches: Iterator[list[Pair]]) -> None:
        """Take ten steps in each precision, and keep the faster one."""
        seconds = {}
        for self.bf16 in (False, True, False, True):
            began = time.perf_counter()
            for batch in itertools.islice(batches, 10):
                self.step(batch)
            # The second time counts: the first one compiles kernels.
            seconds[self.bf16] = time.perf_counter() - began
        self.bf16 = seconds[True] < seconds[False]


@torch.inference_mode()
def translate(model: Any, tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    """Translate with greedy search."""
    model.eval()
    sources = [[*encoding.ids, EOS_ID] for encoding in tokenizer.encode_batch(list(texts))]
    order = sorted(range(len(texts)), key=lambda place: len(sources[place]))
    lines = [""] * len(texts)
    for start in range(0, len(order), 64):
        places = order[start : start + 64]
        src = padded([sources[place] for place in places])
        found = model.generate(
            input_ids=src, attention_mask=(src != PAD_ID).long(), num_beams=1, max_new_tokens=100
        )
        decoded = tokenizer.decode_batch(found.tolist(), skip_special_tokens=True)
        for place, line in zip(places, decoded, strict=True):
            lines[place] = line
    return lines


def main() -> None:
    began = time.time()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    add = parser.add_argument
    add("--train", type=Path, required=True, help="JSON lines to train on")
    add("--test", type=Path, required=True, help="JSON lines to translate")
    add("--src", default="en")
    add("--tgt", default="de")
    add("--minutes", type=float, required=True)
    add("--out", type=Path, required=True, help="where the translations and, beside them, the facts go")
    add("--began", type=float, default=began, help="when the process was started, in seconds since 1970")
    options = parser.parse_args()
    torch.manual_seed(1)
    src, tgt = read(options.train, options.src, options.tgt)
    tokenizer = train_tokenizer([*src, *tgt])
    pairs = [
        Pair([*source.ids, EOS_ID], target.ids)
        for source, target in zip(tokenizer.encode_batch(src), tokenizer.encode_batch(tgt), strict=True)
        if len(source.ids) < 128 and len(target.ids) < 128
    ]
    batches = endless_batches(pairs)
    loop = Loop(build_model(tokenizer.get_vocab_size()), ends_at=options.began + 60 * options.minutes)
    loop.choose_precision(batches)
    while time.time() < options.began + 60 * options.minutes:
        loop.step(next(batches))
    facts = {
        "minutes": (time.time() - options.began) / 60,
        "tgt_tokens": loop.num_tokens,
        "steps": loop.num_steps,
        "precision": "bf16" if loop.bf16 else "float32",
    }
    lines = translate(loop.model, tokenizer, read(options.test, options.src, options.tgt)[0])
    options.out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    options.out.with_suffix(".json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
