"""The simulation studies: which pre-rank sees which mistake, how many cases it needs, and the opening figure."""
