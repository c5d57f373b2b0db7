"""A few cases at a time, so that what is made on the way to a result stays near the cache's size."""

import torch

# Numbers of a temporary. A million (4 or 8 MB) stays near a CPU's cache, where it is several times as fast; a GPU has
# little of a cache and a cost for every call.
ELEMENTS = 1 << 20
ELEMENTS_ON_GPU = 1 << 26


def at_once(values_each: int, device: torch.device) -> int:
    """How many cases, or models, to take together if each needs a temporary of so many numbers."""
    return max(1, (ELEMENTS if device.type == "cpu" else ELEMENTS_ON_GPU) // max(1, values_each))


def chunks(n_cases: int, values_per_case: int, device: torch.device) -> list[slice]:
    """Slices of cases such that a temporary of `values_per_case` numbers per case stays near the cache's size."""
    size = at_once(values_per_case, device)
    return [slice(start, min(start + size, n_cases)) for start in range(0, n_cases, size)]
