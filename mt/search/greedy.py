"""Greedy search: at each step the likeliest token."""

from mt.search.hypothesis import Hypothesis
from mt.search.model import CacheT, EncoderDecoder
from mt.search.request import SearchRequest
from mt.search.stepwise import write_stepwise


def greedy_search(model: EncoderDecoder[CacheT], request: SearchRequest) -> list[Hypothesis]:
    """Translate a batch with a model in evaluation mode: one hypothesis for each sentence, in order."""
    return write_stepwise(model, request, lambda logits, sentences, step: logits.argmax(-1))
