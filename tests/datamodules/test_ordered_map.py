import math
from itertools import count, islice

import pytest

from datamodules.ordered_map import ordered_map


@pytest.mark.parametrize("alone_seconds", [0.0, 60.0])
def test_results_come_in_order(alone_seconds: float):
    assert list(ordered_map(math.factorial, range(40), alone_seconds)) == [math.factorial(number) for number in range(40)]
    assert list(ordered_map(math.factorial, [], alone_seconds)) == []


@pytest.mark.parametrize("alone_seconds", [0.0, 60.0])
def test_endless_jobs_are_read_only_a_little_ahead(alone_seconds: float):
    read = count()
    assert list(islice(ordered_map(math.isqrt, read, alone_seconds), 10)) == [0, 1, 1, 1, 2, 2, 2, 2, 2, 3]
    assert next(read) < 1000


def test_an_error_of_a_job_is_raised():
    with pytest.raises(ValueError, match="nonnegative"):
        list(ordered_map(math.isqrt, [1, 4, -1, 9], 0.0))
