#!/usr/bin/env python3
"""How long gloo's all_reduce of floats takes, through PyTorch: barrier before each operation, slowest rank, median.

usage: gloo.py RANKS BYTES...        prints one line for each size: bytes, median in microseconds

Needs PyTorch; without it the exit status is 77, and the caller leaves gloo out.
"""
import os
import socket
import statistics
import sys
import time

FEWEST_ROUNDS, MOST_ROUNDS, BUDGET_SECONDS = 7, 300, 1.0


def main() -> None:
    ranks, sizes = int(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    try:
        import torch.multiprocessing
    except ImportError:
        sys.exit(77)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(measure, (ranks, port, sizes), nprocs=ranks)


def measure(rank: int, ranks: int, port: int, sizes: list[int]) -> None:
    import torch
    import torch.distributed as group

    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    if ranks <= len(cores):
        os.sched_setaffinity(0, {cores[rank]})
    group.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    for size in sizes:
        tensor = torch.zeros(size // 4)
        times: list[float] = []
        while len(times) < FEWEST_ROUNDS or (len(times) < MOST_ROUNDS and sum(times) < BUDGET_SECONDS):
            times.append(slowest_of_one(torch, group, tensor))
        if rank == 0:
            print(size, f"{statistics.median(times) * 1e6:.3f}", flush=True)
    group.destroy_process_group()


def slowest_of_one(torch, group, tensor) -> float:
    """Seconds of one operation on the slowest rank; all ranks get the same number."""
    group.barrier()
    begin = time.perf_counter()
    group.all_reduce(tensor)
    mine = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
    group.all_reduce(mine, op=group.ReduceOp.MAX)
    return float(mine)


if __name__ == "__main__":
    main()
