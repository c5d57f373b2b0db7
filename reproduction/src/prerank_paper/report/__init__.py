"""Every table and figure of the paper from the records of a benchmark, and what they say of its claims."""
