"""Greedy search: at each step the likeliest token."""

from collections.abc import Sequence

from torch import Tensor

from mt.search.constraints import NO_CONSTRAINTS, Constraints
from mt.search.hypothesis import Hypothesis
from mt.search.model import CacheT, EncoderDecoder
from mt.search.stepwise import write_stepwise


def greedy_search(
    model: EncoderDecoder[CacheT],
    src_ids: Tensor,
    src_mask: Tensor,
    limits: Sequence[int],
    *,
    keep_unk: bool = False,
    copyable: Tensor | None = None,
    constraints: Constraints = NO_CONSTRAINTS,
) -> list[Hypothesis]:
    """Translate a batch; arguments and result as in `mt.search.stepwise.write_stepwise`."""
    return write_stepwise(
        model,
        src_ids,
        src_mask,
        limits,
        lambda logits, _rows, _step: logits.argmax(-1),
        keep_unk=keep_unk,
        copyable=copyable,
        constraints=constraints,
    )
