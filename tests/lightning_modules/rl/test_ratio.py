import itertools
import random
from fractions import Fraction

import pytest

from lightning_modules.rl.ratio import Ratio

RATES = [0.25, 1 / 3, 1, 20, 0.7, 2.5]


def test_a_third_by_hand():
    ratio = Ratio(1 / 3)
    assert [ratio(1) for _ in range(7)] == [0, 0, 1, 0, 0, 1, 0]
    assert ratio(5) == 2  # 12 steps are 4 updates


@pytest.mark.parametrize("utd", RATES)
def test_no_drift_at_any_tick(utd: float):
    exact = Fraction(utd).limit_denominator(1000)
    ticks = random.Random(0)
    for choose in (lambda: 1, lambda: 7, lambda: ticks.choice([0, 1, 2, 3, 16, 1001])):
        ratio, steps, updates = Ratio(utd), 0, 0
        for _ in range(3_000):
            new = choose()
            steps += new
            updates += ratio(new)
            assert 0 <= exact * steps - updates < 1


@pytest.mark.parametrize("utd", RATES)
def test_no_drift_after_very_many_steps(utd: float):
    ratio = Ratio(utd)
    updates = sum(ratio(10**9 + 1) for _ in range(1_000))
    assert 0 <= Fraction(utd).limit_denominator(1000) * (10**9 + 1) * 1_000 - updates < 1


@pytest.mark.parametrize("utd", RATES)
def test_a_restored_ratio_goes_on_where_it_was(utd: float):
    whole, first, second = Ratio(utd), Ratio(utd), Ratio(utd)
    ticks = [1, 4, 2, 7, 1, 1, 3, 5]
    expected = [whole(tick) for tick in ticks]
    begun = [first(tick) for tick in ticks[:4]]
    second.load_state_dict(first.state_dict())
    assert begun + [second(tick) for tick in ticks[4:]] == expected


def test_a_fraction_that_is_owed_is_restored():
    first, second = Ratio(0.75), Ratio(0.75)
    assert first(1) == 0
    second.load_state_dict(first.state_dict())
    assert second(1) == 1
    assert Ratio(0.75)(1) == 0


def test_no_burst_whatever_was_before():
    # a million steps before the restart leave less than one update
    first, second = Ratio(20.5), Ratio(20.5)
    first(1_000_001)
    second.load_state_dict(first.state_dict())
    assert second(1) <= 21


def test_state_is_made_of_numbers():
    ratio = Ratio(1 / 3)
    ratio(4)
    assert ratio.state_dict() == {"owed_numerator": 1, "owed_denominator": 3}


@pytest.mark.parametrize("utd", [0, -1, float("nan"), float("inf"), 1e-12])
def test_a_rate_that_means_nothing_is_refused(utd: float):
    with pytest.raises(ValueError, match="utd"):
        Ratio(utd)


def test_steps_do_not_go_back():
    ratio = Ratio(1)
    assert list(itertools.starmap(ratio, [(2,), (0,)])) == [2, 0]
    with pytest.raises(ValueError, match="new_steps"):
        ratio(-1)
