"""Which tokens search may not write, and where it has to write the unknown word, as a copy.

A source word that the model does not know can be carried over. Where the alignment head looks at such a word,
one that has not been carried over yet, the unknown word is written and stands for it. Everywhere else search
takes the best known word.
"""

import torch
from torch import Tensor

from mt.search.model import CacheT, EncoderDecoder
from mt.special_tokens import BOS_ID, PAD_ID, UNK_ID


class Copying:
    """The rule in one search over R rows, which are written for B sentences."""

    def __init__(self, copyable: Tensor | None, *, keep_unk: bool, rows_per_sentence: int = 1) -> None:
        """Begin a search.

        Args:
            copyable: ``(B, S)``, True where a source word is to be carried over; None copies nothing.
            keep_unk: Let the unknown word be written anywhere, standing for nothing.
            rows_per_sentence: Beams.
        """
        self.rows_per_sentence = rows_per_sentence
        self._forbidden = [PAD_ID, BOS_ID] if keep_unk else [PAD_ID, BOS_ID, UNK_ID]
        # Nothing is paid for where there is nothing to copy.
        self._active = copyable is not None and not keep_unk and bool(copyable.any())
        if copyable is not None:
            self._open = copyable.repeat_interleave(rows_per_sentence, dim=0)
            self._done = torch.zeros_like(self._open)
            self._history = self._open.new_zeros(len(self._open), 0, dtype=torch.long)
        self._positions = torch.empty(0)

    def decode_step(self, model: EncoderDecoder[CacheT], ids: Tensor, cache: CacheT) -> Tensor:
        """Logits as the model gives them, in float32; remembers what the alignment head looks at."""
        step = model.decode_step(ids, cache, with_alignment=self._active)
        if step.alignment_scores is not None:
            # The head may well attend to a word again that is copied already, but cannot mean it again.
            least = torch.finfo(step.alignment_scores.dtype).min
            self._positions = step.alignment_scores.masked_fill(self._done, least).argmax(-1)
        return step.logits.float()

    def forbid(self, logits: Tensor) -> None:
        """Give minus infinity to what may not follow: ``(R, V)``, changed in place."""
        unk = logits[:, UNK_ID].clone()
        logits[:, self._forbidden] = -torch.inf
        if self._active:
            # To write another word there would be to translate what nobody knows: it is mostly invented.
            copies = self._open.gather(1, self._positions[:, None])
            logits.masked_fill_(copies, -torch.inf)
            logits[:, UNK_ID] = unk.where(copies[:, 0], -torch.inf)

    def copied(self, row: int, newest: int) -> list[int]:
        """The source positions that the unknown words of a row stand for, it going on with ``newest``."""
        if not self._active:
            return []
        before = [position for position in self._history[row].tolist() if position >= 0]
        return [*before, int(self._positions[row])] if newest == UNK_ID else before

    def select(self, rows: Tensor, newest: Tensor) -> None:
        """Go on with these rows ``(R',)``, each with its newest token ``(R',)``."""
        if not self._active:
            return
        positions = self._positions[rows].masked_fill(newest != UNK_ID, -1)
        # Where nothing is copied, -1 is no position, and nothing is done.
        is_copied = positions[:, None] == torch.arange(self._open.size(1), device=positions.device)
        self._open = self._open[rows]
        # In a beginning that is given an unknown word may stand for a known one, which is never done.
        self._done = self._done[rows] | (is_copied & self._open)
        self._history = torch.cat((self._history[rows], positions[:, None]), dim=1)
