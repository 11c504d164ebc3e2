"""What the training loop needs in one process: validation, checkpoints, interruption and progress."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, zip_longest

from mt import distributed, processes
from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.data.batches.batch import Batch, collate
from mt.data.batches.sampler import ordered_batches
from mt.data.prepare import Prepared
from mt.display import progress
from mt.errors import Interrupted, OverflowedLinesError, TrainingError
from mt.inference.engine.folders import remove_stale
from mt.inference.loaded_model import tokenizer_checksums
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.training.attention_images import Pixels, attention_images
from mt.training.bad_batches import keep_bad_batch
from mt.training.counters import Counters, CurvePoint
from mt.training.interruption import Interruption
from mt.training.progress import Progress
from mt.training.samples import Sample
from mt.training.step import StepResult
from mt.training.train_state import TrainState
from mt.training.validation import ValidationResult, validate
from mt.transformer.transformer import Transformer

LOG = logging.getLogger(__name__)


def diverged(what: str) -> TrainingError:
    """The error that ends a run whose numbers are no longer finite; ``what`` describes them."""
    return TrainingError(
        f"{what}. Try a lower schedule.learning_rate, more schedule.warmup_steps, or "
        "training.precision=float32, in another run directory with --run PATH, or start over with "
        "--restart, which moves the old run aside.",
    )


@dataclass
class Session:
    """One process's part of a run, from its start or from a checkpoint to its end or an interruption."""

    config: Config
    run: RunDirectory
    store: CheckpointStore
    prepared: Prepared
    environment: dict[str, str | int]
    interruption: Interruption
    progress: Progress | None
    """None for all processes except the first."""
    newest: Checkpoint | None = None
    """The newest checkpoint of the run."""

    def __post_init__(self) -> None:
        # Read once: if the files are lost while training, checkpoints can still be saved.
        self._tokenizer_checksums = tokenizer_checksums(self.run)
        self._attention: list[Pixels] = []

    def validate(self, train_state: TrainState) -> ValidationResult | None:
        """Evaluate the model; None if this was interrupted, in which case it is repeated on resuming."""
        objective, validation = train_state.objective, self.prepared.corpus.validation
        try:
            with train_state.evaluation_weights():
                return validate(
                    objective,
                    self._validation_batches(),
                    train_state.precision,
                    translate=partial(self._translate, objective.model),
                    sources=list(validation["src"]),
                    references=list(validation["tgt"]),
                    tgt_tokenizer=self.prepared.tgt_tokenizer,
                    others=self.prepared.other_validation,
                )
        except Interrupted:
            self.interruption.agree(stop=True)
            return None
        except OverflowedLinesError as error:
            step = train_state.counters.step
            raise diverged(
                f"the model's logits are NaN or infinite in the validation at step {step:,}"
            ) from error

    def _translate(self, model: Transformer, sources: Sequence[str]) -> list[str]:
        """Translate the validation split with the current weights, and draw what they attend to."""
        prepared = self.prepared
        translator = ModelTranslator(
            self.config,
            model,
            prepared.src_tokenizer,
            prepared.tgt_tokenizer,
            target_ratio=prepared.train.target_ratio,
        )
        with progress(len(sources), unit="sentences", description="validating") as advance:
            hypotheses = translator.translate(
                sources, join_lines=True, advance=advance, before_each_step=self.interruption.check_share
            )
        self._attention = attention_images(translator, prepared.corpus.validation)
        return hypotheses

    def agree_on_time(self, counters: Counters) -> None:
        """Use the first process's time if time limits the run, because all must agree on its end."""
        if self.config.training.max_minutes is not None:
            counters.seconds = distributed.broadcast(counters.seconds)

    def report_step(self, counters: Counters, result: StepResult, point: CurvePoint | None) -> None:
        """Show one more step, and add a point to the training curves if there is one."""
        if self.progress is not None:
            self.progress.step(counters, result, point)

    def show(self, counters: Counters, result: ValidationResult) -> None:
        """Show a validation with some of its translations, spread evenly over the validation split."""
        if self.progress is None:
            return
        rows = self.prepared.corpus.validation
        count = min(self.config.validation.num_samples, len(rows))
        places = [len(rows) * number // count for number in range(count)]
        samples = [Sample(rows[i]["src"], result.hypotheses[i], rows[i]["tgt"]) for i in places]
        self.progress.validation(counters, result, samples)
        self.progress.attention(counters, self._attention)

    def save(self, train_state: TrainState, figures: dict[str, float], *, is_best: bool) -> None:
        """Save a checkpoint, with the metrics of the validation at this step, if there was one."""
        if processes.is_first():
            self._save(train_state, figures, is_best=is_best)
        distributed.barrier()

    def _save(self, train_state: TrainState, figures: dict[str, float], *, is_best: bool) -> None:
        started = time.perf_counter()
        model = train_state.objective.model
        if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
            raise diverged(f"model weights are NaN or infinite at step {train_state.counters.step:,}")
        if self.progress is not None:
            self.progress.sync()
        training_state = train_state.save()
        with train_state.evaluation_weights():
            self.newest = self.store.save(
                train_state.counters.step,
                train_state.objective.model.weights(),
                training_state,
                metrics=figures,
                environment=self.environment,
                tokenizers=self._tokenizer_checksums,
                computation=self.config.computation(),
                best=is_best,
                keep=self.config.checkpoint.keep,
            )
        remove_stale(self.run)
        seconds = time.perf_counter() - started
        if self.progress is not None:
            self.progress.leave_out(seconds)
        LOG.info("saved %s in %.2f seconds", self.newest.name, seconds)

    def save_new_steps(self, train_state: TrainState, figures: dict[str, float]) -> None:
        """Save a checkpoint, with the metrics as in `save`, if there were steps since the newest one."""
        if distributed.broadcast(train_state.counters.step != (self.newest.step if self.newest else 0)):
            self.save(train_state, figures, is_best=False)

    def keep_bad_batch(self, step: int, micro_batches: Sequence[Batch], result: StepResult) -> None:
        """Write the batch of a step whose loss or gradient was not finite into the run directory."""
        newest = self.newest.name if self.newest else None
        dealt = distributed.all_gather([batch for batch in micro_batches if batch.num_target_tokens])
        if processes.is_first():
            in_turns = chain.from_iterable(zip_longest(*dealt))
            keep_bad_batch(self.run, step, newest, [batch for batch in in_turns if batch is not None], result)

    def _validation_batches(self) -> Iterator[Batch]:
        pairs = self.prepared.validation
        batches = ordered_batches(
            pairs.src.lengths, pairs.tgt.lengths, batch_tokens=self.config.training.batch_tokens
        )
        for indices in islice(batches, processes.rank(), None, processes.size()):
            self.interruption.check_share()
            yield collate(*pairs.select(indices))
