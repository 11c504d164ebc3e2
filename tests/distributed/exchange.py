"""Two processes exchange values by every function of `mt.distributed`: torchrun ... exchange.py FOLDER."""

import sys
from pathlib import Path

import pytest
import torch

from mt import distributed, processes
from mt.errors import DataError, Interrupted

folder, rank = Path(sys.argv[1]), processes.RANK
with distributed.connected("cpu"):
    assert distributed.broadcast(f"from {rank}") == "from 0"
    assert distributed.all_gather(rank) == [0, 1]
    assert distributed.all_reduce(torch.tensor([1.0, rank])).tolist() == [2, 1]
    # As if each were on a machine of its own.
    processes.LOCAL_RANK = 0
    assert distributed.scatter(range(5), lambda number: number * number) == [0, 1, 4, 9, 16]

    def read_and_write() -> list[str]:
        names = sorted(path.name for path in folder.iterdir())
        (folder / f"rank {rank}").touch()
        return names

    assert distributed.first_rank_first(read_and_write) == ["rank 0"][:rank]
    processes.LOCAL_RANK = rank

    def fail_in_the_second() -> None:
        if rank == 1:
            raise DataError("it failed in the second process")

    with pytest.raises(DataError, match="second process"):
        distributed.barrier_after(fail_in_the_second)

    def fail_in_all() -> None:
        raise DataError(f"it failed in {rank}")

    def give_up_in_the_second() -> None:
        if rank == 1:
            raise Interrupted

    with pytest.raises(DataError, match="in 0"):
        distributed.barrier_after(fail_in_all)
    with pytest.raises(Interrupted):
        distributed.barrier_after(give_up_in_the_second)
    # Each of them has another gradient, and all get the mean.
    module = torch.nn.Linear(1, 1, bias=False)
    wrapped = distributed.data_parallel(module)
    with distributed.no_sync(wrapped):
        wrapped(torch.tensor([[1.0]])).backward()
    wrapped(torch.tensor([[float(rank)]])).backward()
    assert module.weight.grad is not None
    assert module.weight.grad.item() == 1.5
    distributed.barrier()
