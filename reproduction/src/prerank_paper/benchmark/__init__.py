"""The experiments on data: the grid of datasets, pre-ranks, strengths and seeds, run in fleets and recorded."""
