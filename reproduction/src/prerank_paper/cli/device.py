"""The device that a command computes on, by its name."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def device_called(name: str) -> "torch.device":
    """The device of a name; one that this machine does not have is refused."""
    import torch  # loads slowly

    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"there is no device called {name!r}; use cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("this machine has no CUDA device that torch can use; leave --device out")
    return device
