"""The command line: `prerank-paper simulate`, `prerank-paper benchmark`, ... One module per command."""

from prerank_paper.cli.main import main

__all__ = ["main"]
