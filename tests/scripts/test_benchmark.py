"""The benchmark compares like with like: checked without its extra, on what needs torch alone."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from mt.data.batches.batch import collate
from mt.training.loss import Objective
from scripts.benchmark import doubts, report
from scripts.benchmark.__main__ import TRANSLATING, Benchmark, main
from scripts.benchmark.session import Job
from scripts.benchmark.sides import prepare
from scripts.benchmark.sides.mt_train import new_model
from scripts.benchmark.sides.plain_loop import PaddedBatch
from scripts.benchmark.sides.prepare import Preparation
from scripts.benchmark.sides.torch_loop import TorchTransformer, state_from_mt
from scripts.benchmark.sides.tutorial import LENGTH, TutorialTransformer
from scripts.benchmark.sizes import SIZES, training_flops
from scripts.benchmark.translating import SearchResult
from scripts.benchmark.workload import PAD_ID, Description, Ragged, Workload, decoding_texts

TINY = SIZES["tiny"]


@pytest.fixture
def workload() -> Workload:
    random = np.random.default_rng(0)
    src, tgt = ([random.integers(4, 50, random.integers(3, 12)) for _ in range(6)] for _ in range(2))
    description = Description("noise", 50, 60, 200, 1, 32, 6, 8.0)
    batches = [np.arange(3), np.arange(3, 6)]
    return Workload(description, Ragged.of(src), Ragged.of(tgt), Ragged.of(batches))


def test_a_workload_comes_back_from_its_files(workload: Workload, tmp_path: Path) -> None:
    workload.save(tmp_path)
    loaded = Workload.load(tmp_path)
    assert loaded.description == workload.description
    for number in (0, 1):
        for pair, same in zip(workload.pairs_of_batch(number), loaded.pairs_of_batch(number), strict=True):
            np.testing.assert_array_equal(pair[0], same[0])
            np.testing.assert_array_equal(pair[1], same[1])


def test_the_plain_loop_has_the_loss_and_the_gradient_of_mt(workload: Workload) -> None:
    ours = new_model(TINY, workload.description).eval()
    theirs = TorchTransformer(TINY, workload.description)
    state = state_from_mt(ours.weights())
    theirs.load_state_dict({**state, "positions": theirs.positions})
    for module in theirs.modules():
        # In training mode, where the gradient is, but without what is random.
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    pairs = workload.pairs_of_batch(0)
    batch = collate([src for src, _ in pairs], [tgt for _, tgt in pairs])
    our_loss: Tensor = Objective(ours)(batch, 0.1) / batch.num_target_tokens
    our_loss.backward()  # type: ignore[no-untyped-call]
    padded = PaddedBatch.of(pairs, "cpu")
    logits = theirs(padded.src, padded.tgt).flatten(0, 1)
    their_loss = F.cross_entropy(logits, padded.labels.flatten(), ignore_index=PAD_ID, label_smoothing=0.1)
    their_loss.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(our_loss, their_loss)
    gradients = {name: p.grad for name, p in ours.named_parameters() if p.grad is not None}
    for name, gradient in state_from_mt(gradients).items():
        parameter = theirs.get_parameter(name)
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-5, rtol=1e-4)


def test_the_arithmetic_is_what_torch_counts(workload: Workload) -> None:
    model = TutorialTransformer(TINY, workload.description)
    ids = torch.ones(1, LENGTH, dtype=torch.long)
    mask = torch.ones(1, 1, 1, LENGTH, dtype=torch.int)
    with FlopCounterMode(display=False) as counter:
        loss: Tensor = model(ids, mask, ids, mask).sum()
        loss.backward()  # type: ignore[no-untyped-call]
    # The tutorials compute the whole square of the target's attention, of which half is of use.
    wasted = 6 * TINY.num_layers * 2 * TINY.d_model * LENGTH * (LENGTH - 1) / 2
    needed = training_flops(TINY, workload.description.tgt_vocabulary_size, [LENGTH], [LENGTH])
    assert counter.get_total_flops() == needed + wasted


def test_only_the_measured_section_of_the_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("# Performance\n\nbefore\n")
    report.write_section(page, "first")
    page.write_text(page.read_text() + "\nafter\n")
    report.write_section(page, "second")
    text = page.read_text()
    assert text == "# Performance\n\nbefore\n\n<!-- bench -->\nsecond\n<!-- /bench -->\n\nafter\n"


def test_the_report_compares_mt_with_the_faster_layout_of_each_type() -> None:
    def of(side: str, rates: list[float], milliseconds_alone: float) -> SearchResult:
        return SearchResult(side, 1, "", rates, [milliseconds_alone / 1000] * 3, lines=["Hallo"])

    ours = [of("mt_translate", [1000, 2100, 1600], 5), of("mt_translate_float32", [900, 1200, 1000], 6)]
    one_worker = [of("ctranslate2_float32", [1000, 1100, 900], 4.1), of("ctranslate2_int8", [500] * 3, 23)]
    workers = [
        of("ctranslate2_float32_workers", [1250, 1400, 1000], 8.8),
        of("ctranslate2_int8_workers", [2000] * 3, 2.6),
    ]
    table = report.translating_table([*ours, *one_worker, *workers], 1, threads=2)
    assert "| CTranslate2 float32, 1 x 2 threads | 1,000 |" in table
    assert "| CTranslate2 float32, 2 x 1 thread | 1,250 |" in table
    assert "| CTranslate2 int8, 1 x 2 threads | 500 |" in table
    assert "| CTranslate2 int8, 2 x 1 thread | 2,000 |" in table
    assert (
        "CTranslate2 float32 is faster with 2 x 1 thread in batches and with 1 x 2 threads for one sentence "
        # The rounds' ratios are 1000 / 1250, 2100 / 1400 and 1600 / 1000, and with 900, 1200 and 1000.
        "alone. Compared with the faster layout in batches, mt is 1.50 x (0.80 to 1.60) as fast, and mt in "
        "float32 is 0.86 x (0.72 to 1.00) as fast.\n"
    ) in table
    assert (
        "CTranslate2 int8 is faster with 2 x 1 thread, both in batches and for one sentence alone. Compared "
        "with the faster layout in batches, mt is 0.80 x (0.50 to 1.05) as fast"
    ) in table
    # A single layout needs no name.
    table = report.translating_table([*ours, *one_worker], 1, threads=1)
    assert "| CTranslate2 float32 | 1,000 |" in table
    assert "Compared with CTranslate2 int8 in batches, mt is 3.20 x (2.00 to 4.20) as fast" in table
    assert "thread" not in table


def test_each_side_gives_ctranslate2_its_layout(
    workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    workload.save(tmp_path)
    for side in ("src", "tgt"):
        tokenizers.Tokenizer(tokenizers.models.BPE()).save(str(tmp_path / f"{side}_tokenizer.json"))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    given: list[tuple[str, int, int]] = []

    def translator(*_: str, compute_type: str, inter_threads: int, intra_threads: int, device: str) -> None:
        given.append((compute_type, inter_threads, intra_threads))

    monkeypatch.setattr(ctranslate2, "Translator", translator)
    for name in [name for name in TRANSLATING if name.startswith("ctranslate2")]:
        module = importlib.import_module(f"scripts.benchmark.sides.{name}")
        monkeypatch.setattr(module, "serve_translations", lambda *_: None)
        module.run(None, Job(tmp_path, TINY, "cpu"))
    assert given == [("float32", 1, 3), ("float32", 3, 1), ("int8", 1, 3), ("int8", 3, 1)]


@pytest.mark.parametrize(("option", "code"), [([], 1), (["--quick"], 0)])
def test_a_doubt_fails_a_run_that_measures_but_not_one_that_only_tries_everything(
    option: list[str],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def measured_while_the_machine_was_busy(self: Benchmark) -> list[str]:
        self.doubts += doubts.about_ceilings([450, 443, 300, 451])
        return ["the tables"]

    monkeypatch.setattr(Benchmark, "run", measured_while_the_machine_was_busy)
    monkeypatch.setattr(Benchmark, "introduction", lambda *_: "on what")
    output = tmp_path / "page.md"
    monkeypatch.setattr("sys.argv", ["bench", "--folder", str(tmp_path), "--output", str(output), *option])
    assert main() == code
    said = capsys.readouterr()
    assert "the tables" in said.out
    assert "round 3 was 300 GFLOP/s" in said.err
    assert not output.exists()


def test_the_model_that_translates_is_trained_to_a_quality_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "STEPS_BETWEEN_SCORES", 2)
    monkeypatch.setattr(prepare, "MOST_STEPS", 4)
    monkeypatch.setattr(prepare, "NUM_SCORED", 5)
    preparation = Preparation(Job(tmp_path, TINY, "cpu"))
    preparation.make_workload(data="builtin:primer", src="en", tgt="de", num_pairs=300, batch_tokens=500)
    facts = preparation.learn(bleu=0.0, num_sentences=5)
    assert facts["steps"] == 2
    assert facts["left_out"] <= facts["tried"]
    saved = (tmp_path / "decoding.safetensors").stat().st_mtime_ns
    assert preparation.learn(bleu=0.0, num_sentences=5) == facts
    assert (tmp_path / "decoding.safetensors").stat().st_mtime_ns == saved
    assert len(decoding_texts(tmp_path)) == 5
    with pytest.raises(RuntimeError, match=r"BLEU 0\.\d after 4 steps, and not 99"):
        preparation.learn(bleu=99.0, num_sentences=5)
