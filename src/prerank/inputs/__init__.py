"""What users pass, checked and brought into one layout: axes, labels, missing values, units, lazy members."""

from prerank.inputs.cases import Cases, as_ensemble

__all__ = [
    "Cases",
    "as_ensemble",
]
