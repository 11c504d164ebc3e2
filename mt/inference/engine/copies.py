"""Which source words a translation copies, by the rule of `mt.search.rules`: checked after the search."""

from collections.abc import Sequence
from dataclasses import replace

from mt.inference.engines import Attention, Sentence
from mt.search.hypothesis import Hypothesis
from mt.search.strategy import Beam
from mt.special_tokens import EOS_ID, UNK_ID


def check_rules(
    hypotheses: Sequence[Hypothesis], sentence: Sentence, beam: Beam, *, copies: bool
) -> list[Hypothesis] | Sentence:
    """The hypotheses that copy by the rule, the best first; or what to search for if the first does not.

    Without ``copies``, there is nothing to copy, whatever the head that aligns attends to.
    """
    kept: list[Hypothesis] = []
    for hypothesis in hypotheses:
        copied, again = copies_of(hypothesis, sentence, hypothesis.attention if copies else ())
        if again is None or len(again.prefix) >= sentence.limit:
            kept.append(replace(hypothesis, copied=copied))
        elif not kept:
            return again
    kept = [hypothesis for hypothesis in kept if hypothesis.finished] or kept
    return sorted(kept, key=beam.normalised_score, reverse=True)[: beam.size]


def copies_of(
    hypothesis: Hypothesis, sentence: Sentence, attention: Attention
) -> tuple[list[int], Sentence | None]:
    """The source position that each UNK copies, up to the first token that breaks the rule.

    If there is one, the sentence is also returned with the prefix with which to search again.

    For example, "Quux sees Wixnub" is read as ``UNK 7 UNK`` and translated as ``UNK 8 </s>``, and the head
    attends most to positions 0, 1 and 2. The UNK copies "Quux", as it must. But "Wixnub" is due where the
    translation ends, so the search is repeated with the prefix ``UNK 8 UNK``, whose tokens copy the positions
    0, -1 (nothing) and 2. Had the third token been UNK, the result would be ``[0, 2]`` and None.
    """
    ids = [*hypothesis.ids, EOS_ID] if hypothesis.finished else [*hypothesis.ids]
    positions = [*sentence.prefix_copies]
    for step in range(len(positions), min(len(ids), len(attention))):
        # No word is copied twice.
        others = [position for position in range(len(sentence.ids)) if position not in positions]
        weights = attention[step]
        attended = max(others, key=weights.__getitem__, default=-1)
        # The weights are without that of EOS, which may be attended to most.
        is_due = attended >= 0 and sentence.ids[attended] == UNK_ID and weights[attended] > 1 - sum(weights)
        if is_due == (ids[step] == UNK_ID):
            positions.append(attended if is_due else -1)
            continue
        prefix = ids[:step]
        if is_due:
            prefix.append(UNK_ID)
            positions.append(attended)
        return _copied(prefix, positions), replace(sentence, prefix=prefix, prefix_copies=positions)
    return _copied(ids, positions), None


def _copied(ids: Sequence[int], positions: Sequence[int]) -> list[int]:
    return [position for position, token in zip(positions, ids, strict=False) if token == UNK_ID]
