"""The whole paper in one command: the grid of datasets, pre-ranks, strengths and seeds, and the report on it."""
