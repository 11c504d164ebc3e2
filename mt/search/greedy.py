"""Greedy search: the likeliest token at each step."""

from mt.search.hypothesis import Hypothesis
from mt.search.request import CacheT, EncoderDecoder, SearchRequest
from mt.search.stepwise import Candidates, Step, search_stepwise
from mt.search.top_k import top_k


def greedy_search(model: EncoderDecoder[CacheT], request: SearchRequest) -> list[Hypothesis]:
    """Translate a batch by the likeliest token of each step: one hypothesis for each sentence, in order."""
    return [best for [best] in search_stepwise(model, request, _likeliest)]


def _likeliest(step: Step) -> Candidates:
    _, tokens = top_k(step.log_probs, 1)
    return step.continued_by(tokens)
