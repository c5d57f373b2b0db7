"""Methods of an estimator that a calibrated one answers in its place."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from sklearn.utils.validation import check_is_fitted

Method = TypeVar("Method", bound=Callable[..., Any])


def by_the_calibrated(method: Method) -> Method:
    """With `calibrate`, ask `calibrated_`, which has a method of the same name."""

    @wraps(method)
    def asked(self: Any, *arguments: Any, **more: Any) -> Any:
        if not self.calibrate:
            return method(self, *arguments, **more)
        check_is_fitted(self, "calibrated_")
        return getattr(self.calibrated_, method.__name__)(*arguments, **more)

    return asked  # type: ignore[return-value]
