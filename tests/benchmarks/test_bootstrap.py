import numpy as np
import pytest
from scipy import stats

from benchmarks.bootstrap import bootstrap_interval, interquartile_mean, mean
from benchmarks.report import results_table
from benchmarks.results import Record

RETURNS = np.random.default_rng(7).normal(-150, 40, 12)


def test_the_outer_quarters_are_cut():
    # a quarter of 8 is 2: the mean of 2, 3, 4, 5
    assert interquartile_mean(np.array([0.0, 100.0, 3.0, 2.0, 4.0, 5.0, 1.0, 50.0])) == 3.5


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 7, 8, 10])
def test_it_is_the_trimmed_mean_of_rliable(runs: int):
    values = RETURNS[:runs]
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))
    both = np.stack([values, 2 * values])
    assert interquartile_mean(both) == pytest.approx(stats.trim_mean(both, 0.25, axis=1))


@pytest.mark.parametrize("statistic", [mean, interquartile_mean])
def test_intervals_agree_with_scipy(statistic):
    peer = stats.bootstrap(
        (RETURNS,), lambda x, axis: statistic(np.moveaxis(x, axis, -1)), method="percentile", n_resamples=20_000, rng=1
    ).confidence_interval
    width = peer.high - peer.low
    assert bootstrap_interval(RETURNS.tolist(), statistic) == pytest.approx((peer.low, peer.high), abs=0.03 * width)


def test_the_same_runs_give_the_same_interval():
    assert bootstrap_interval([1.0, 2.0, 4.0]) == bootstrap_interval([1.0, 2.0, 4.0])
    with pytest.raises(ValueError, match="at least two runs, got 1"):
        bootstrap_interval([1.0])


def column(**more):
    return {"title": "", "variants": {"sac": "SAC"}, "columns": [{"metric": "return", "title": "return", "percent": False, **more}]}


def test_a_column_shows_the_interquartile_mean_if_it_asks_for_it():
    records = [Record("e", "sac", "return", seed, value, 0, 0.0, 0) for seed, value in enumerate((1.0, 1.0, 1.0, 1.0, 100.0))]
    header, _, row = results_table(column(interval="iqm"), records).splitlines()
    assert header == "| variant | return, IQM [95 % interval] | runs |"
    # at most one of five draws in twelve has four or more of the outlier, which then reaches the middle
    assert row.startswith("| SAC | 1 [1, ")
    assert "21 ± 20" in results_table(column(), records)
    assert "| SAC | 1 | 1 |" in results_table(column(interval="iqm"), records[:1])
    assert "diverged" in results_table(column(interval="iqm"), [*records, Record("e", "sac", "return", 9, float("nan"), 0, 0.0, 0)])
