"""Figures and tables. Plots take an Axes and numbers, return the Axes, and compute nothing."""
