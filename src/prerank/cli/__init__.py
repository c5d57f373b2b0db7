"""The command line: `prerank check`, `prerank demo`, ... One module per command."""

from prerank.cli.main import main

__all__ = ["main"]
