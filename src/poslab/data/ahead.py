"""Work that threads do ahead of whoever needs it, in order and in bounded memory."""

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
    """Yield what `compute` returns for each item, of which so many are `waiting` at most.

    An error is raised where its result would be. Where the consumer ends before the items do, so do the
    threads.
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
