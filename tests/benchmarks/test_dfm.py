"""The samplers' costs and errors that the figures of discrete flow models show."""

import re

import pytest
import yaml

from benchmarks.calculations import flow_samplers
from benchmarks.calculations.flow_samplers import block_errors, letter_likelihoods
from benchmarks.experiments import REPOSITORY, Experiment
from benchmarks.methods.dfm import EXPERIMENTS
from benchmarks.methods.dfm.figures import cost_figure, reached
from benchmarks.results import Record
from callbacks.figure_style import PALETTE


def record(variant: str, metric: str, value: float, seed: int = 1) -> Record:
    return Record("digits", variant, metric, seed, value, 0, 0.0, 0)


def test_exact_errors_are_those_of_the_prototype(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flow_samplers, "CALLS", (8,))
    monkeypatch.setattr(flow_samplers, "COUNTED", 500)
    flow_samplers._block_errors.cache_clear()
    found = {variant: block_errors(variant, 1) for variant in ("mask_tc", "mask_lc", "uniform_tc", "uniform_lc")}
    flow_samplers._block_errors.cache_clear()
    # at equal calls: 8 steps of TC, 4 of LC
    expected = {"mask_tc": 0.04600474, "mask_lc": 0.01290391, "uniform_tc": 0.01777418, "uniform_lc": 0.01633551}
    assert {variant: values["tv_at_8"] for variant, values in found.items()} == pytest.approx(expected, abs=1e-6)
    assert found["mask_tc"]["kl_at_8"] == pytest.approx(0.01000798, abs=1e-7)
    assert found["mask_tc"]["data_tv_at_8"] == pytest.approx(0.04584528, abs=1e-6)
    assert found["mask_lc"]["data_tv_at_8"] == pytest.approx(0.01349501, abs=1e-6)
    assert found["mask_tc"]["evals_at_8"] == 8
    assert 4 < found["mask_lc"]["evals_at_8"] < 7


def test_letters_are_judged_by_their_likelihood(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flow_samplers, "LETTER_CALLS", (8,))
    monkeypatch.setattr(flow_samplers, "SAMPLES", 300)
    found = {name: letter_likelihoods(f"uniform_{name}", 1) for name in ("euler", "tc", "truth")}
    # .354, .174 and .09 with 1 000 samples; the deviation of a sample's mean is about .01
    assert found["euler"]["excess_at_8"] == pytest.approx(0.35, abs=0.07)
    assert found["tc"]["excess_at_8"] == pytest.approx(0.174, abs=0.06)
    assert found["truth"]["excess_at_8"] == pytest.approx(0.1, abs=0.05)
    assert letter_likelihoods("mask_truth", 1)["excess_at_8"] == pytest.approx(0.0, abs=0.06)
    assert letter_likelihoods("uniform_tc", 2) != found["tc"]


def test_costs_are_taken_from_both_kinds_of_records():
    calculated = [record("mask_lc", "tv_at_8", 0.2), record("mask_lc", "evals_at_8", 5.0), record("mask_lc", "tv_at_16", 0.1)]
    found = reached(calculated, "tv")["mask"]["lc"]
    assert (found[8].values, found[8].evals) == ([0.2], [5.0])
    trained = [
        record("lc_8", f"test/{{row}}/calls_16/{name}", value, seed)
        for seed in (1, 2)
        for name, value in (("exact_tv", 0.1 * seed), ("evals_per_sample", 12.0), ("exact_kl", 9.0))
    ]
    trained.append(record("lc_8", "test/elbo_nats", 6.0))
    both = {source: reached(trained, "exact_tv", source)[source]["lc_8"] for source in ("mask", "uniform")}
    assert both["mask"][16].values == [0.1, 0.2]
    assert both["mask"][16].evals == [11.0, 11.0], "without the last draw"
    assert both["uniform"][16].evals == [12.0, 12.0]


def test_the_figure_has_a_row_a_source_and_a_column_a_cost():
    records = [
        record(f"{source}_{name}", f"{metric}_at_{calls}", value / calls, seed)
        for source in ("mask", "uniform")
        for name in ("euler", "lc")
        for calls in (4, 8)
        for seed in (1, 3)
        for metric, value in (("tv", seed), ("evals", 8.0 * calls))
    ]
    records += [record("mask_truth", "tv_at_4", 0.25)]
    figure = cost_figure(records, {}, metric="tv", y_label="variation", floor="truth")
    assert [axes.get_title() for axes in figure.axes] == ["masks", "masks", "uniform noise", "uniform noise"]
    calls, evals = figure.axes[:2]
    curves = {container.get_label(): container.lines[0] for container in calls.containers}
    assert list(curves) == ["Euler", "LC"]
    assert curves["LC"].get_xdata().tolist() == [4.0, 8.0]
    assert curves["LC"].get_ydata() == pytest.approx([0.5, 0.25])
    assert evals.containers[0].lines[0].get_xdata().tolist() == [8.0, 8.0]
    (level,) = [line for line in calls.lines if line.get_label().startswith("true law")]
    assert set(level.get_ydata()) == {0.25}
    for experiment in EXPERIMENTS:
        kinds = {name.partition("_")[2] if name.startswith(("mask_", "uniform_")) else name for name in experiment.titles}
        assert len(kinds - {"truth"}) <= len(PALETTE), "each sampler of a figure has its own style"


def test_table_and_figures_ask_for_what_is_measured():
    experiments = {experiment.name: experiment for experiment in EXPERIMENTS}
    assert {"mask_euler", "uniform_lc"} <= experiments["exact_blocks"].titles.keys()
    for name in ("trained_blocks_mask", "trained_blocks_uniform", "digits_mask", "digits_uniform"):
        experiment = experiments[name]
        assert isinstance(experiment, Experiment)
        recorded = {*experiment.curve, *(metric.name for metric in experiment.metrics)}
        assert {"test/{row}/calls_8/evals_per_sample", "test/{row}/calls_16/evals_per_sample"} <= recorded
        (variant,) = experiment.variants.values()
        config = yaml.safe_load((REPOSITORY / variant.config).read_text())
        assert config["model"]["init_args"]["samplers"] == list(experiment.rows)
        assert config["model"]["init_args"]["source"] in name
        calls = {int(match[1]) for metric in recorded if (match := re.search(r"calls_(\d+)", metric))}
        assert calls == set(config["model"]["init_args"]["calls"])
