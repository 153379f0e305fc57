"""How runs are written: each kind of spread by a hand-computed case."""

from benchmarks.report import format_runs


def test_standard_error_and_deviation():
    values = [1.0, 2.0, 3.0, 4.0]  # deviation sqrt(5/3) = 1.291, error half of it
    assert format_runs(values, False) == "2.50 ± 0.65"
    assert format_runs(values, False, "standard_deviation") == "2.5 ± 1.3"


def test_mean_with_a_bootstrap_interval():
    assert format_runs([0.5, 0.5, 0.5], True, "bootstrap") == "50.0 [50.0, 50.0]"
    text = format_runs([0.0, 1.0, 0.0, 1.0], True, "bootstrap")
    assert text == "50.0 [0.0, 100.0]"  # all four alike happens in 1 of 16 samples on either side


def test_a_single_run_has_no_spread():
    for kind in ("standard_error", "standard_deviation", "bootstrap", "iqm"):
        assert format_runs([0.25], True, kind) == "25.0"


def test_rounding_noise_is_no_error():
    assert format_runs([1.0, 1.0 + 4e-16], False) == "1 ± 0"
    assert format_runs([1.0, 1.00004], False) == "1.000020 ± 0.000020"
