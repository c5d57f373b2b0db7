"""What a checkpoint must agree with."""

import re
from collections.abc import Sequence
from dataclasses import fields

from prerank.randomness import key
from prerank.training.batches import Batches
from prerank.training.fleet import Architecture, Run
from prerank.training.options import FitOptions

_WITHOUT_EFFECT = ("checkpoint", "checkpoint_seconds", "max_steps", "keep_on_interrupt")


def fingerprint(runs: Sequence[Run], batches: Batches, architecture: Architecture, options: FitOptions) -> str:
    """A digest of the runs, the data and all options that change the result."""
    kept = {item.name: getattr(options, item.name) for item in fields(options) if item.name not in _WITHOUT_EFFECT}
    data = (batches.digest(), batches.size, batches.seeds)
    text = repr((list(runs), architecture, data, kept, batches.x.dtype))
    # a function prints its address, which no other process shares: Custom(f) is told by its name alone
    return str(key(0, re.sub(r" at 0x[0-9a-fA-F]+", "", text)))
