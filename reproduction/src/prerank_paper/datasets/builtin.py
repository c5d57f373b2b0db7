"""Tables that need no download: three synthetic recipes and one small real dataset."""

from dataclasses import dataclass

from prerank.datasets import Bimodal, Card, ClaytonDependent, Heteroscedastic, Table


@dataclass(frozen=True)
class Diabetes:
    """Six serum measurements of 442 patients as joint targets, given age, sex, body mass index and blood pressure.

    In their original units. Disease progression, the usual target, is left out: it was measured a year later.

    References
    ----------
    .. [1] Efron, B., Hastie, T., Johnstone, I. and Tibshirani, R. (2004). Least angle regression. Annals of Statistics 32,
       407-499. The data are those that scikit-learn carries.

    Examples
    --------
    >>> Diabetes().table(n_cases=100).n_targets
    6
    """

    def table(self, n_cases: int = 442, seed: int = 0) -> Table:
        """The first patients.

        Parameters
        ----------
        n_cases : int, default 442
            Number of patients.
        seed : int, default 0
            Unused: the data are what they are.

        Returns
        -------
        Table
            Four features and six targets.
        """
        from sklearn.datasets import load_diabetes

        values = load_diabetes(scaled=False).data[:n_cases]
        card = Card(
            "diabetes",
            summary="six serum measurements of 442 patients",
            origin="built in (scikit-learn)",
            status="real, not in the paper",
            licence="BSD-3 (scikit-learn)",
        )
        targets = ("total_cholesterol", "ldl", "hdl", "cholesterol_ratio", "log_triglycerides", "glucose")
        return Table(values[:, :4], values[:, 4:10], ("age", "sex", "bmi", "blood_pressure"), targets, card)


BUILTIN: dict[str, Bimodal | ClaytonDependent | Diabetes | Heteroscedastic] = {
    "heteroscedastic": Heteroscedastic(),
    "bimodal": Bimodal(),
    "clayton": ClaytonDependent(),
    "diabetes": Diabetes(),
}
"""What `load` knows without a file, by name."""
