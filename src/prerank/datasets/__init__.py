"""Tables whose true distribution is known, real forecasts by name, and files from the web, verified.

>>> table = Bimodal().table(n_cases=800, seed=0)
>>> table.x.shape, table.y.shape
((800, 2), (800, 2))
"""

from prerank.datasets.named_forecasts import load_forecast
from prerank.datasets.standardise import Standardiser
from prerank.datasets.synthetic import Bimodal, ClaytonDependent, Heteroscedastic
from prerank.datasets.table import Card, Table

__all__ = ["Bimodal", "Card", "ClaytonDependent", "Heteroscedastic", "Standardiser", "Table", "load_forecast"]
