"""The experiments of the paper, reproduced with `prerank`: simulations, benchmark, ablations, and the report on them."""

__version__ = "0.1.0"
