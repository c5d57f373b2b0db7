"""Chunks of cases beside each other, on as many threads as are granted, and one thread inside every operation.

A call makes thousands of small operations. Where each is split by OpenMP, its threads wait for each other thousands of
times, and beside another program, or with fewer processors than threads, every waiting may take a time slice. Chunks
wait for each other once. How cases are cut does not depend on the number of threads, and results are taken in the order of
the chunks, so not a bit does.
"""

from prerank._parallel.operations import single_threaded, single_threaded_blas, threads_inside
from prerank._parallel.spreading import granted_threads, in_threads

__all__ = ["granted_threads", "in_threads", "single_threaded", "single_threaded_blas", "threads_inside"]
