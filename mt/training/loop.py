"""The training loop: when to step, validate, save and stop."""

from mt.training.session import Session
from mt.training.train_state import TrainState


def train(state: TrainState, session: Session) -> str | None:
    """Train until the run is finished, and return why in words, or None if it is interrupted.

    `state.step` (`TrainState.launch`, by `mt.training.step`) zeroes the gradients, adds those of its batches
    (`mt.training.update.add_gradients`), and changes the weights by AdamW, which `mt.training.optimizers`
    makes, with the learning rate of the step (`update_weights`).
    """
    finished = None
    # An interruption while an epoch is prepared or validated leaves the block: `finished` is None then.
    with session.ignoring_interruption:
        session.catch_up(state)
        while (finished := session.finished(state)) is None and not session.stopping:
            result = state.step(session.next_batches(state))
            session.react(result)
            session.count_time(state)
            if session.length_due(state):
                session.choose_length(state)
            if session.validation_due(state):
                session.validate(state)
            if session.checkpoint_due(state):
                session.save(state)
    return session.close(state, finished)
