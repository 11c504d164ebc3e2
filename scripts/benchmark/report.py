"""The measured figures as Markdown, for the terminal and the report."""

from collections.abc import Sequence
from statistics import median

from scripts.benchmark import layouts
from scripts.benchmark.session import Job
from scripts.benchmark.training import TrainingResult, ratios
from scripts.benchmark.translating import SearchResult
from scripts.benchmark.workload import Description

NAMES = {
    "mt_train": "**mt**",
    "torch_loop": "plain `torch.nn.Transformer` loop",
    "marian": "Hugging Face Marian",
    "eole": "eole",
    "joeynmt": "JoeyNMT",
    "tutorial": "the tutorials' loop",
    "mt_translate": "**mt**",
    "mt_translate_float32": "mt in float32",
    "marian_generate": "Hugging Face `generate`",
    "ctranslate2_float32": "CTranslate2 float32",
    "ctranslate2_float32_workers": "CTranslate2 float32, a worker per thread",
    "ctranslate2_int8": "CTranslate2 int8",
    "ctranslate2_int8_workers": "CTranslate2 int8, a worker per thread",
}
METHOD = """\
The programs take turns in rounds, each in its own process, which waits while the others work. Ratios are of
the same round; the tables show their median, with the least and the most. Target tokens are real ones, with
EOS and without padding, and the arithmetic that is compared with the ceiling counts the same tokens.

The same mathematics in mt, the plain loop and Marian: the same batches in the same order, the same first
weights (see the loss of the first batch), post-norm, sinusoidal positions, ReLU, dropout 0.1 on the
embeddings and after each sub-layer and nowhere else, output weights tied to the target embedding, label
smoothing 0.1, gradient clipped to norm 1, Adam. eole and JoeyNMT are run by their own training code with
their own batches of as many tokens: eole is pre-norm and also has dropout inside the feed-forward network;
JoeyNMT is post-norm and has it there and on the attention weights as well. The tutorials' loop is taken
from them: 8 sentences padded to 350 tokens, dropout everywhere, output not tied.

All programs translate with the same weights, from text to text. Sentences that mt's greedy search does not
end by itself are left out, because each program limits length in its own way. Batch sizes of the others
are the fastest of those tried. On a CPU, CTranslate2 runs in two layouts, each in its own process: as one
worker that has all threads and as one worker per thread. With two threads, these are called "1 x 2 threads"
and "2 x 1 thread"."""


def training_table(job: Job, results: Sequence[TrainingResult], ceilings: Sequence[float]) -> str:
    """How fast each side does the job."""
    size = job.size
    reference = next(result for result in results if result.side == "mt_train")
    lines = [
        f"### Training, {size.name}, {job.precision}: d_model {size.d_model}, {size.num_heads} heads, "
        f"d_ff {size.d_ff}, {size.num_layers}+{size.num_layers} layers",
        "",
        f"Ceiling: {median(ceilings):,.0f} GFLOP/s ({min(ceilings):,.0f} to {max(ceilings):,.0f}), the best "
        f"of several large matrix products in {job.precision}, measured in each of the {len(ceilings)} "
        "rounds.",
        "",
        "| | target tokens/s | mt is faster by (least to most) | GFLOP/s | of the ceiling | padding tgt/src "
        "| peak MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        speeds = [turn.tokens_per_second for turn in result.turns]
        ratio = ratios([turn.tokens_per_second for turn in reference.turns], speeds)
        lines.append(
            f"| {NAMES[result.side]} | {_number(median(speeds))} "
            f"| {_ratio(*ratio) if result is not reference else '-'} "
            f"| {_number(median(turn.gigaflops for turn in result.turns))} "
            f"| {median(turn.share_of_ceiling for turn in result.turns):.1%} "
            f"| {result.tgt_padding:.0%} / {result.src_padding:.0%} | {result.peak_mb:,.0f} |"
        )
    same = [result for result in results if result.first_loss is not None]
    losses = ", ".join(f"{NAMES[result.side]} {result.first_loss:.5f}" for result in same)
    lines += ["", f"Loss of the first batch before training, dropout off: {losses}."]
    return "\n".join(lines)


def translating_table(results: Sequence[SearchResult], beam_size: int, threads: int) -> str:
    """How fast each side translates with this beam and this number of threads."""
    reference = next(result for result in results if result.side == "mt_translate")
    # Outputs are compared with those in float32, which are the same on all machines.
    exact = next((result for result in results if result.side == "mt_translate_float32"), None)
    compared = exact or reference
    names = _translating_names(results, threads)
    search = "greedy search" if beam_size == 1 else f"beam of {beam_size}"
    lines = [
        f"### Translating, {search}: {len(compared.lines):,} sentences",
        "",
        "| | sentences/s | mt is faster by (least to most) | one sentence alone, ms | peak MB (translating) "
        "| same output | batches |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        ratio = "-"
        if result is not reference:
            ratio = _ratio(*ratios(reference.sentences_per_second, result.sentences_per_second))
        same = sum(a == b for a, b in zip(result.lines, compared.lines, strict=True)) / len(compared.lines)
        lines.append(
            f"| {names[result.side]} | {_number(median(result.sentences_per_second))} | {ratio} "
            f"| {1000 * median(result.seconds_alone):.1f} | {result.peak_mb:,.0f} ({result.added_mb:,.0f}) "
            f"| {'-' if result is compared else f'{same:.1%}'} | {result.batching} |"
        )
    for group in layouts.by_peer([r for r in results if r.side.startswith("ctranslate2")]):
        lines += ["", _comparison(group, reference, exact, names, threads)]
    return "\n".join(lines)


def _translating_names(results: Sequence[SearchResult], threads: int) -> dict[str, str]:
    """The name of each side's row, with the layout of its threads where CTranslate2 ran in more than one."""
    names = {result.side: NAMES[layouts.peer(result.side)] for result in results}
    if any(side.endswith(layouts.WORKERS) for side in names):
        for side in names:
            if side.startswith("ctranslate2"):
                names[side] += f", {layouts.layout(side, threads)}"
    return names


def _comparison(
    group: Sequence[SearchResult],
    reference: SearchResult,
    exact: SearchResult | None,
    names: dict[str, str],
    threads: int,
) -> str:
    """Which layout of a peer is faster, and `mt` beside the one that is faster in batches."""
    fastest, alone = layouts.fastest_in_batches(group), layouts.fastest_alone(group)
    sentences, other = [], names[fastest.side]
    if len(group) > 1:
        in_batches, for_one = (layouts.layout(result.side, threads) for result in (fastest, alone))
        where = (
            f"with {in_batches}, both in batches and for one sentence alone"
            if fastest is alone
            else f"with {in_batches} in batches and with {for_one} for one sentence alone"
        )
        sentences.append(f"{NAMES[layouts.peer(fastest.side)]} is faster {where}.")
        other = "the faster layout"
    ratio = _ratio(*ratios(reference.sentences_per_second, fastest.sentences_per_second))
    text = f"Compared with {other} in batches, mt is {ratio} as fast"
    if exact is not None:
        ratio = _ratio(*ratios(exact.sentences_per_second, fastest.sentences_per_second))
        text += f", and mt in float32 is {ratio} as fast"
    return " ".join([*sentences, f"{text}."])


def workload_text(description: Description, *, rounds: Sequence[str]) -> str:
    """What was measured, and what is the same on all sides."""
    what = (
        f"Workload: {description.corpus}, {description.num_pairs:,} pairs, byte-level BPE with "
        f"{description.src_vocabulary_size:,} and {description.tgt_vocabulary_size:,} entries, "
        f"{description.mean_tgt_length:.1f} target tokens a sentence, at most "
        f"{description.batch_tokens:,} tokens a batch."
    )
    return "\n\n".join([" ".join([what, *rounds]), METHOD])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ratio(middle: float, least: float, most: float) -> str:
    return f"{middle:.2f} x ({least:.2f} to {most:.2f})"
