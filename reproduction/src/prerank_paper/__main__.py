"""`python -m prerank_paper` is `prerank-paper`."""

from prerank_paper.cli import main

main()
