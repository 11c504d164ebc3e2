"""Which device is chosen, on machines that have it and on machines that do not."""

import pytest
import torch

from mt.device import choose_device
from mt.errors import DeviceError


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A machine that has these accelerators and no others."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in request.param)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in request.param)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [(["cuda", "mps"], "cuda"), (["cuda"], "cuda"), (["mps"], "mps"), ([], "cpu")],
    indirect=["machine"],
)
@pytest.mark.usefixtures("machine")
def test_auto_takes_the_best_there_is(expected: str) -> None:
    assert choose_device("auto") == torch.device(expected)
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device(expected) == torch.device(expected)


@pytest.mark.parametrize("machine", [["mps"]], indirect=True)
@pytest.mark.parametrize("name", ["cuda", "gpu", ""])
@pytest.mark.usefixtures("machine")
def test_device_that_is_not_there_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(DeviceError, match=rf"no usable device '{name}'\. Choose auto or mps, cpu\."):
        choose_device(name)
