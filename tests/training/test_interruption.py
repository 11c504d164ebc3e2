"""Signals and time limits: what is remembered of them, and what is left as it was."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from mt import processes
from mt.errors import Interrupted
from mt.run_directory import RunDirectory
from mt.training.interruption import Interruption
from mt.training.run import run_training
from tests.fixture_types import MakeConfig

STOP_SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_is_remembered_and_the_handlers_come_back(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    code = 128 + number
    before = [signal.getsignal(each) for each in STOP_SIGNALS]
    with Interruption() as interruption:
        assert interruption.signal is None
        assert (interruption.exit_code, interruption.is_due) == (0, False)
        os.kill(os.getpid(), number)
        assert interruption.signal == number
        assert (interruption.exit_code, interruption.is_due) == (code, True)
        assert capfd.readouterr().err.startswith(f"\n{number.name}: finishing this step and saving; ")
        # Schedulers may send theirs more than once: the first counts, and no harm is done.
        os.kill(os.getpid(), signal.SIGTERM)
        assert (interruption.exit_code, capfd.readouterr().err) == (code, "")
    assert [signal.getsignal(each) for each in STOP_SIGNALS] == before


def test_one_of_several_processes_does_not_stop_before_all_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "ARE_SEVERAL", True)
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        assert not interruption.is_due
        interruption.all_processes_know = True
        assert interruption.is_due
    with Interruption() as other:
        other.all_processes_know = True
        assert (other.exit_code, other.reason) == (75, "another process was asked to stop")


@pytest.mark.parametrize("is_first", [True, False])
def test_only_the_first_process_abandons_at_once_what_need_not_be_saved(
    is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "IS_FIRST", is_first)
    with Interruption() as interruption:
        abandoned = pytest.raises(Interrupted) if is_first else nullcontext()
        with abandoned, interruption.interrupting_immediately():
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            interruption.check_share()
        # What comes later does not even begin.
        with abandoned, interruption.interrupting_immediately():
            assert not is_first
    with Interruption() as later:
        with later.interrupting_immediately():
            assert (later.reason, later.exit_code) == ("nothing", 0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert later.reason == "SIGTERM"


def test_ctrl_c_after_another_signal_stops_at_once() -> None:
    with Interruption():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_that_was_ignored_stays_ignored(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), number)
            assert interruption.signal is None
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("seconds", [0.05, 0.0, -3.0])
def test_time_that_is_up_also_before_the_start_stops_at_once(seconds: float) -> None:
    with Interruption(seconds) as interruption:
        time.sleep(0.1)
        assert interruption.signal == signal.SIGALRM
        assert interruption.exit_code == 75


@pytest.mark.parametrize("is_main", [True, False])
def test_the_time_limit_ends_with_its_block(is_main: bool) -> None:
    def leave_early() -> Interruption:
        with Interruption(0.1) as interruption:
            return interruption

    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    try:
        with ThreadPoolExecutor(1) as executor:
            left = leave_early() if is_main else executor.submit(leave_early).result()
            time.sleep(0.2)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert (left.signal, rung) == (None, [])


def test_another_thread_trains_and_its_time_limit_holds(make_config: MakeConfig, run: RunDirectory) -> None:
    before = [signal.getsignal(each) for each in STOP_SIGNALS]
    with ThreadPoolExecutor(1) as executor:
        endless = make_config("training.max_steps=null", "training.max_epochs=100000")
        stopped = executor.submit(run_training, endless, run, max_seconds=0.5).result()
        assert (stopped.finished, stopped.exit_code) == (None, 75)
        assert run.stopped_file.read_text() == "the time is up\n"
        last = stopped.counters.step + 1
        ended = executor.submit(run_training, make_config(f"training.max_steps={last}"), run).result()
        assert ended.finished is not None
        assert ended.counters.step == last
    assert [signal.getsignal(each) for each in STOP_SIGNALS] == before
