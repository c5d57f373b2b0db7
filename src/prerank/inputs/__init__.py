"""What users pass, checked and brought into one layout: axes, labels, lazy members."""

from prerank.inputs.layout import as_ensemble

__all__ = [
    "as_ensemble",
]
