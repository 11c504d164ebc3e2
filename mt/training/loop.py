"""The training loop: when to step, validate, save and stop."""

from contextlib import suppress

from mt.data.batches.stream import BatchStream
from mt.errors import Interrupted
from mt.training.session import Session
from mt.training.train_state import TrainState


def train(state: TrainState, batches: BatchStream, session: Session) -> str | None:
    """Train until the config's limits are reached, or until the session is interrupted.

    Returns:
        Why the run is finished, in words, or None if it was interrupted; then it is saved and can be resumed.
    """
    finished = None
    # Preparing an epoch and validating take so long that they are cut short.
    with suppress(Interrupted):
        session.catch_up(state)
        while (finished := session.finished(state)) is None and not session.stopping:
            result = state.step(batches.take(state.position))
            session.log(result)
            if session.validation_due(state):
                session.validate(state)
            if session.checkpoint_due(state):
                session.save(state)
    return session.close(state, finished)
