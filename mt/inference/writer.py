"""A run, or an ensemble, that writes a side of training pairs, by the fastest engine that can search so."""

import logging
from collections.abc import Sequence

from mt.config.sources import WriterConfig
from mt.data.written import Writer
from mt.errors import RunError
from mt.inference.exported_folder import weights_of
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory, as_run
from mt.search.strategy import Beam, Sampling, Strategy
from mt.sides import Sides

LOG = logging.getLogger(__name__)


def open_writer(config: WriterConfig, direction: Sides[str]) -> Writer:
    """The writer that translates in this direction.

    Raises:
        MtError: If one of its runs is missing, damaged or still being trained, or has other languages.
    """
    members: list[RunDirectory] = []
    for name in config.run.split(","):
        member = as_run(name.strip()).require()
        if owner := member.lock_owner():
            raise RunError(f"{member.path} is still being trained by {owner}: wait until it is finished.")
        members.append(member)
    run, *others = members
    translator = Translator.from_run(run, others=others).into(direction.tgt, direction.src)
    strategy: Strategy = Beam(config.beam) if config.beam > 1 else None
    if config.temperature is not None:
        strategy = Sampling(config.temperature, top_k=config.top_k)
        LOG.warning("%s samples with torch, which is slower than CTranslate2", run.path)
    else:
        LOG.info("%s writes; %s", config.run, translator.described)

    def translate(texts: Sequence[str], first: int) -> list[str | None]:
        found = translator.n_best(
            texts, strategy=strategy, join_lines=True, with_scores=False, first_line=first
        )
        written: list[str | None] = []
        for best, *_ in found:
            # What reached its length limit may be a repetition that has no other end.
            is_whole = all(hypothesis.finished for _, hypothesis in best.parts)
            written.append(best.text if is_whole else None)
        return written

    weights = [weights_of(member, "best") for member in members]
    search = config.model_dump(exclude={"run"})
    return Writer({"runs": config.run, "weights": weights, "direction": [*direction], **search}, translate)
