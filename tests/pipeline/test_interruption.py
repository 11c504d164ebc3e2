import os
import signal

import pytest

from mt.pipeline.interruption import SIGNALS, Interruption


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 128 + signal.SIGUSR1)]
)
def test_a_signal_is_remembered_and_the_handlers_come_back(number: signal.Signals, code: int) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with Interruption() as interruption:
        assert not interruption()
        assert interruption.exit_code == 0
        os.kill(os.getpid(), number)
        assert interruption()
        assert interruption.exit_code == code
        # Schedulers may send theirs more than once: the first counts, and no harm is done.
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.exit_code == code
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_a_second_ctrl_c_stops_at_once() -> None:
    with Interruption():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
