"""How a fleet is trained."""

from dataclasses import dataclass, field
from pathlib import Path

from prerank.training.objective import NegativeLogLikelihood
from prerank.training.protocols import Score, require_score


@dataclass(frozen=True)
class FitOptions:
    """How a fleet is trained; the defaults are the paper's.

    Parameters
    ----------
    n_components : int, default 5
        Components of the mixture.
    hidden : tuple of int, default (100, 100)
        Width of each hidden layer.
    floor : float, default 1e-3
        The smallest diagonal entry of a Cholesky factor.
    learning_rate : float, default 1e-4
        Of Adam.
    batch_size : int, default 256
        Cases of a minibatch.
    max_epochs : int, default 5000
        The most epochs.
    patience : int, default 15
        Epochs without an improvement that end a model.
    min_improvement : float, default 1e-4
        The least change of the validation score that counts as one.
    n_restarts : int, default 0
        How many times a model goes on from its best weights instead of ending; so does a model that diverged.
    cooling : float, default 0.3
        Factor of the learning rate at each restart.
    anchored : bool, default False
        Whether networks start at the linear-Gaussian reference of the training rows.
    common_correlations : bool, default False
        Whether the correlations of a component do not vary with the features.
    score : Score, default NegativeLogLikelihood()
        What is minimised; the penalty is added.
    monitor : Score, default NegativeLogLikelihood()
        The validation score, which stops a model.
    checkpoint : pathlib.Path, optional
        Where an interrupted fit picks up.
    checkpoint_seconds : float, default 60
        Time between two checkpoints.
    max_steps : int, optional
        Interrupt the fit there: the best weights of the epochs that were completed come back.
    keep_on_interrupt : bool, default False
        Whether Ctrl-C does the same; a second one ends the process as ever.
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
