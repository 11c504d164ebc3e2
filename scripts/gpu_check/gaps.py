"""Profile training and search: how long the device waits between two kernels, and which kernels attend."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from mt.data.batches.batch import Batch
from mt.data.batches.stream import BatchStream, StepBatches
from mt.device import SEARCH_DTYPES, SearchPrecision, choose_device, choose_precision
from mt.search.beam import beam_search
from mt.search.greedy import greedy_search
from mt.search.request import SearchRequest
from mt.search.strategy import Beam, Constraints
from mt.special_tokens import EOS_ID
from mt.transformer.transformer import Transformer
from scripts.benchmark.sizes import SIZES
from scripts.gpu_check.job import Job, head, row
from scripts.gpu_check.steps import BATCH_TOKENS, new_state, random_pairs

MOST_OF_A_STEP = 0.1
"""The longest gap between two kernels, as a share of a training step."""
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
ATTENTION = "aten::_scaled_dot_product_"
ATTENTION_MATH = "aten::_scaled_dot_product_attention_math"
MODELS = {"cuda": ("base", 8_000), "cpu": ("tiny", 300)}
"""The size and the number of words."""
SENTENCES, LENGTH = {"cuda": 128, "cpu": 4}, {"cuda": 30, "cpu": 10}
"""Of a search."""
STEPS = 5


@dataclass(frozen=True)
class Timeline:
    """When the device was busy, in microseconds."""

    busy: Sequence[tuple[float, float]]
    """Beginning and end of each kernel, in any order; they may overlap."""

    def gaps(self) -> list[float]:
        """The times between the first and the last kernel in which none ran."""
        gaps, until = [], None
        for start, end in sorted(self.busy):
            if until is not None and start > until:
                gaps.append(start - until)
            until = end if until is None else max(until, end)
        return gaps

    @property
    def span(self) -> float:
        """From the beginning of the first kernel to the end of the last."""
        return max(end for _, end in self.busy) - min(start for start, _ in self.busy)


@dataclass(frozen=True)
class Profile:
    """Some steps, profiled."""

    timeline: Timeline
    num_steps: int
    num_waits: int
    """Calls in which the host waited for the device."""
    attention: Counter[str]
    """The calls of each kernel of attention."""


def main() -> int:
    job = Job.given()
    device = choose_device(job.device)
    size, vocabulary = MODELS[job.device]
    train_state = new_state(SIZES[size], vocabulary, device)
    batches = _batches(vocabulary, BATCH_TOKENS[job.device])
    head("what", "ms a step", "device busy", "longest gap", "share of a step", "waits a step", "attention")
    training = profiled(lambda: [train_state.step(StepBatches.of(each)) for each in batches], STEPS, device)
    _show(f"training in {train_state.precision.name}", training)
    model = train_state.objective.model.eval()
    request = _request(vocabulary, SENTENCES[job.device], LENGTH[job.device], device)
    for precision in dict.fromkeys((choose_precision("auto", device), "float32")):
        _profile_search(deepcopy(model).to(SEARCH_DTYPES[precision]), request, precision, device)
    longest = max(training.timeline.gaps(), default=0.0) / (training.timeline.span / STEPS)
    print(
        f"\nIn training no gap may be longer than {MOST_OF_A_STEP:.0%} of a step; "
        "in search they are reported only."
    )
    if job.device == "cpu":
        # Python, which nothing hides.
        print("On a CPU they are gaps between calls of torch; those between kernels need a GPU.")
    return 0 if longest <= MOST_OF_A_STEP or job.device == "cpu" else 1


@torch.inference_mode()
def _profile_search(
    model: Transformer, request: SearchRequest, precision: SearchPrecision, device: torch.device
) -> None:
    steps = max(request.limits)
    greedy = profiled(lambda: greedy_search(model, request), steps, device)
    _show(f"greedy search in {precision}", greedy)
    beam = profiled(lambda: beam_search(model, request, Beam(5)), steps, device)
    _show(f"beam of 5 in {precision}", beam)


def profiled(work: Callable[[], object], num_steps: int, device: torch.device) -> Profile:
    """Do the work twice, the second time under the profiler."""
    is_cuda = device.type == "cuda"
    work()
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if is_cuda else [])
    with profile(activities=activities) as recorded:
        work()
        if is_cuda:
            torch.cuda.synchronize()
    events = recorded.events() or []
    kind = DeviceType.CUDA if is_cuda else DeviceType.CPU
    busy = [
        (event.time_range.start, event.time_range.end)
        for event in events
        # On CUDA there are annotations too, such as the whole step of the optimizer.
        if event.device_type == kind
        and (not event.is_user_annotation if is_cuda else event.cpu_parent is None)
    ]
    attention = Counter(
        event.name.removeprefix(ATTENTION)
        for event in events
        if event.name.startswith(ATTENTION) and not event.name.startswith(ATTENTION_MATH)
    )
    num_waits = sum(event.name in WAITS for event in events)
    return Profile(Timeline(busy), num_steps, num_waits, attention)


def _show(what: str, found: Profile) -> None:
    span, gaps = found.timeline.span, found.timeline.gaps()
    longest, a_step = max(gaps, default=0.0), span / found.num_steps
    calls = ", ".join(f"{name} {number / found.num_steps:.0f}" for name, number in found.attention.items())
    row(
        what,
        f"{a_step / 1000:.2f}",
        f"{1 - sum(gaps) / span:.1%}",
        f"{longest:,.0f} µs",
        f"{longest / a_step:.1%}",
        f"{found.num_waits / found.num_steps:.1f}",
        calls or "-",
    )


def _batches(vocabulary: int, batch_tokens: int) -> list[Batch]:
    pairs = random_pairs(STEPS * batch_tokens, vocabulary)
    stream = BatchStream(pairs=pairs, batch_tokens=batch_tokens, num_micro_batches=1, seed=1)
    return [stream.take((0, position)).micro_batches[0] for position in range(STEPS)]


def _request(vocabulary: int, sentences: int, length: int, device: torch.device) -> SearchRequest:
    src_ids = torch.randint(4, vocabulary, (sentences, length + 1), device=device)
    src_ids[:, -1] = EOS_ID
    # An untrained model may otherwise end every translation at once.
    constraints = Constraints(min_length=length)
    return SearchRequest(src_ids, [length] * sentences, constraints=constraints)


if __name__ == "__main__":
    sys.exit(main())
