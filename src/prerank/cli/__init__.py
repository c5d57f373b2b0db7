"""The command line: `prerank demo`, `prerank datasets`, ... One module per command."""

from prerank.cli.main import main

__all__ = ["main"]
