"""The paper's experiments: what is run, what is recorded, and what it says."""
