import platform

import numpy as np
import torch

from mt.device import Precision
from mt.training.resume import describe_environment, environment_differences

CPU = torch.device("cpu")


def test_what_decides_about_bits_is_recorded() -> None:
    environment = describe_environment(Precision("float32", CPU))
    assert environment["torch"] == torch.__version__
    assert environment["numpy"] == np.__version__
    assert environment["python"] == platform.python_version()
    assert environment["num_threads"] == torch.get_num_threads()
    assert environment["precision"] == "float32"


def test_differences_name_both_sides() -> None:
    now = describe_environment(Precision("float32", CPU))
    assert environment_differences(now, now) == []
    then = {**now, "torch": "1.13", "num_threads": 99}
    # An older version did not say.
    del then["precision"]
    assert environment_differences(then, now) == [
        f"torch: 1.13 -> {torch.__version__}",
        f"num_threads: 99 -> {torch.get_num_threads()}",
    ]
