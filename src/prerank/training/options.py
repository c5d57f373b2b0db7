"""How a fleet is trained."""

from dataclasses import dataclass, field
from pathlib import Path

from prerank.training.objective import NegativeLogLikelihood
from prerank.training.protocols import Score, require_score


@dataclass(frozen=True)
class FitOptions:
    """How a fleet is trained; the defaults are the paper's.

    `patience` epochs without an improvement of `min_improvement` in the validation score end a model. With `n_restarts`
    it goes on, that many times, from its best weights with `cooling` times its learning rate; so does a model that
    diverged. `anchored` networks start at the linear-Gaussian reference of the training rows, and with
    `common_correlations` the correlations of a component do not vary with the features. `score` is what is minimised (the
    penalty is added), `monitor` what stops. A checkpoint is written every `checkpoint_seconds`. `max_steps` interrupts the
    fit there: what comes back are the best weights of the epochs that were completed. So does Ctrl-C with
    `keep_on_interrupt`; a second one ends the process as ever.
    """

    n_components: int = 5
    hidden: tuple[int, ...] = (100, 100)
    floor: float = 1e-3
    learning_rate: float = 1e-4
    batch_size: int = 256
    max_epochs: int = 5000
    patience: int = 15
    min_improvement: float = 1e-4
    n_restarts: int = 0
    cooling: float = 0.3
    anchored: bool = False
    common_correlations: bool = False
    score: Score = field(default_factory=NegativeLogLikelihood)
    monitor: Score = field(default_factory=NegativeLogLikelihood)
    checkpoint: Path | None = None
    checkpoint_seconds: float = 60.0
    max_steps: int | None = None
    keep_on_interrupt: bool = False

    def __post_init__(self) -> None:
        require_score(self.score, "score")
        require_score(self.monitor, "monitor")
