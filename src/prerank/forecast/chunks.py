"""Cases a few at a time, so that what is made on the way to a result stays near the cache's size."""

import torch


def chunks(n_cases: int, values_per_case: int, device: torch.device) -> list[slice]:
    """Slices of cases such that a temporary of `values_per_case` numbers per case stays near the cache's size.

    A million numbers on a CPU: temporaries that leave the cache cost several times as much. An accelerator has
    little of a cache and much to start for every call, so it takes more.
    """
    budget = 1 << 20 if device.type == "cpu" else 1 << 26
    size = max(1, budget // max(1, values_per_case))
    return [slice(start, min(start + size, n_cases)) for start in range(0, n_cases, size)]
