"""What a PIT is never computed from: everything that would end in a wrong number or an obscure error."""

from torch import Tensor
from torch.distributions import Distribution

from prerank.forecast import Ensemble, Forecast, require_vector_distribution


def refuse_bad_input(forecast: Forecast, y: Tensor, observation_weights: Tensor | None) -> None:
    """Everything that would otherwise end in a wrong number or an obscure error, said with numbers."""
    if isinstance(forecast, Ensemble):
        batch, targets = forecast.members.shape[:-2], forecast.n_targets
        if forecast.n_members == 0:
            raise ValueError("the ensemble has no members; at least one is needed")
    elif isinstance(forecast, Distribution):
        require_vector_distribution(forecast)
        batch, targets = forecast.batch_shape, forecast.event_shape[-1]
    else:
        raise TypeError(
            f"the forecast is a {type(forecast).__name__}; pass an Ensemble, a GaussianMixture or a torch distribution"
        )
    if y.shape[-2] == 0 or y.shape[-1] == 0:
        raise ValueError(f"y of shape {tuple(y.shape)} holds no case or no target; at least one of each is needed")
    if y.shape[-1] != targets or y.shape[-2] != batch[-1]:
        raise ValueError(
            f"y has shape {tuple(y.shape)}, but the forecast is for {batch[-1]} cases and {targets} targets"
        )
    if y.ndim - 1 > len(batch) or any(n not in (1, m) for n, m in zip(y.shape[-2::-1], batch[::-1], strict=False)):
        raise ValueError(
            f"y has shape {tuple(y.shape)} and the forecast {(*batch, targets)} without its members: the leading axes "
            "of y must be those of the forecast, or left out"
        )
    if not y.isfinite().all():
        bad = int((~y.isfinite()).any(-1).sum())
        raise ValueError(
            f"y has NaN or infinite values in {bad} of {y[..., 0].numel()} cases; drop them, or call check(), which "
            "drops missing observations and says how many"
        )
    if isinstance(forecast, Ensemble):
        if not forecast.members.isfinite().all():
            bad = int((~forecast.members.isfinite()).any(-1).any(-1).sum())
            raise ValueError(
                f"members have NaN or infinite values in {bad} of {forecast.members[..., 0, 0].numel()} cases; "
                "drop them, or call check(), which leaves missing members out of their case"
            )
        weights = forecast.weights
        if weights is not None and not (
            weights.isfinite().all() and (weights >= 0).all() and (weights.sum(-1) > 0).all()
        ):
            raise ValueError("member weights must be finite and non-negative, with a positive sum in every case")
    if observation_weights is not None:
        if not isinstance(forecast, Ensemble) or forecast.weights is None:
            raise ValueError("observation_weights go with member weights; give the Ensemble weights too")
        if observation_weights.shape != forecast.weights.shape[:-1]:
            raise ValueError(
                f"observation_weights have shape {tuple(observation_weights.shape)}, one per case is "
                f"{tuple(forecast.weights.shape[:-1])}"
            )
        if not (observation_weights.isfinite().all() and (observation_weights >= 0).all()):
            raise ValueError("observation_weights must be finite and non-negative")


def checked_case_ids(values, n_cases):
    import torch

    return torch.as_tensor(values).long()
