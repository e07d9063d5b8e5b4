"""Compute results in threads ahead of their use, in order and in bounded memory."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(
    compute: Callable[[Item], Result], items: Iterable[Item], threads: int, waiting: int
) -> Iterator[Result]:
    """Yield the result of `compute` for each item, in order, with at most `waiting` results computed ahead.

    An error is raised in place of its result. If the consumer stops before the last item, the threads stop
    too.
    """
    rest, pool = iter(items), ThreadPoolExecutor(threads, "ahead")
    futures = deque(pool.submit(compute, item) for item in islice(rest, waiting))
    try:
        while futures:
            result = futures.popleft().result()
            futures.extend(pool.submit(compute, item) for item in islice(rest, 1))
            yield result
    finally:
        pool.shutdown(cancel_futures=True)
