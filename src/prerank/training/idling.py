"""What finished models cost while they are still computed along with the others."""

import time
from collections.abc import Callable


class Idling:
    """Seconds that went into finished models, from now on; asked at every look at a fleet.

    >>> clock = iter([0.0, 10.0, 14.0])
    >>> idling = Idling(lambda: next(clock))
    >>> idling.seconds(0.0), idling.seconds(0.5)  # nobody had finished for ten seconds, then half of them for four
    (0.0, 2.0)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.seen, self.lost = clock, clock(), 0.0

    def seconds(self, share: float) -> float:
        """In all, if this share of the fleet was finished since the last look."""
        now = self.clock()
        self.lost, self.seen = self.lost + share * (now - self.seen), now
        return self.lost
