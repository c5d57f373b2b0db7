"""NumPy, pandas and xarray become torch tensors here, and go back as what came in: conversion, labels, precision."""

from prerank.arrays.conversion import as_observations, as_tensor

__all__ = [
    "as_observations",
    "as_tensor",
]
