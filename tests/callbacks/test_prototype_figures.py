import functools

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from callbacks.figures import rasterise
from callbacks.prototype_figures import (
    cards_figure,
    draw_actions,
    leading_colours,
    squashed_masses,
    strip_figure,
    timeline_figure,
    turning_moments,
)
from callbacks.state_pictures import draw_state


def texts(figure):
    """All that is written in a figure."""
    return [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")) if text.get_text()]


def test_masses_are_those_of_samples():
    mean, std = torch.tensor([0.3, -4.0]), torch.tensor([0.8, 2.0])
    masses = squashed_masses(mean, std, bins=10)
    assert masses.sum(dim=1).tolist() == pytest.approx([1.0, 1.0])
    drawn = (mean + std * torch.randn(100_000, 2, generator=torch.Generator().manual_seed(0))).tanh()
    for a in range(2):
        counts = torch.histogram(drawn[:, a].clamp(-1 + 1e-6, 1 - 1e-6), 10, range=(-1, 1)).hist / len(drawn)
        assert torch.allclose(masses[a].float(), counts, atol=0.005)


def test_moments_are_where_who_decides_changes():
    weights = torch.zeros(100, 2)
    weights[:, 0] = 1.0
    weights[40:44, 0] = torch.tensor([0.75, 0.5, 0.25, 0.0])
    weights[44:, 0] = 0.0
    weights[:, 1] = 1 - weights[:, 0]
    moments = turning_moments(weights, 6)
    assert (moments[0], moments[-1]) == (0, 99)
    assert set(moments[1:-1]) <= set(range(39, 45))
    assert turning_moments(torch.full((9, 3), 1 / 3), 5) == [0, 2, 4, 6, 8]  # nothing changes: evenly in time
    assert turning_moments(torch.full((1, 3), 1 / 3), 5) == [0]


def test_leaders_are_the_heaviest_of_the_episode():
    weights = torch.tensor([[0.1, 0.6, 0.05, 0.05, 0.05, 0.05, 0.1], [0.4, 0.0, 0.1, 0.05, 0.05, 0.3, 0.1]])
    assert [*leading_colours(weights)] == [1, 0, 5, 6, 2]
    assert len(set(leading_colours(weights).values())) == 5


@pytest.mark.parametrize("angle", [0.0, 0.7, 2.5, -1.2])
def test_the_pendulum_stands_as_gymnasium_draws_it(angle):
    # Gymnasium turns a rod that lies to the right by the angle and a quarter, anticlockwise
    axes = Figure().subplots()
    state = torch.tensor([np.cos(angle), np.sin(angle), 3.0])
    draw_state(axes, state, "gym:Pendulum-v1", -state, state)
    rod, _, arc = axes.lines
    tip = rod.get_xydata()[1]
    assert tip == pytest.approx([np.cos(angle + np.pi / 2), np.sin(angle + np.pi / 2)], abs=1e-6)
    (start, end) = arc.get_xydata()[[0, -1]] / 1.2
    assert start == pytest.approx(tip, abs=1e-6)
    assert end == pytest.approx([np.cos(angle + 1 + np.pi / 2), np.sin(angle + 1 + np.pi / 2)], abs=1e-6)  # 3 rad/s for 1/3 s
    assert axes.texts[0].get_text() == "+3.0 rad/s"


def test_bars_run_from_lowest_to_highest():
    axes = Figure().subplots()
    draw_state(axes, torch.tensor([0.0, 5.0, 7.0]), "gym:Other-v0", torch.tensor([-1.0, 5.0, 7.0]), torch.tensor([3.0, 6.0, 7.0]))
    bars = [patch.get_width() for patch in axes.patches[3:]]
    assert bars == pytest.approx([0.25, 0.0, 0.0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["s1", "s2", "s3"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # s1 at the top


def test_intervals_of_many_actions():
    axes = Figure().subplots()
    mean, std = torch.tensor([0.0, 1.0, -1.0, 2.0]), torch.full((4,), 0.5)
    draw_actions(axes, mean, std)
    (means,) = axes.lines
    assert means.get_xdata() == pytest.approx(mean.tanh().numpy())
    ends = np.array(axes.collections[0].get_segments())[:, :, 0]
    assert ends == pytest.approx(torch.stack([(mean - std).tanh(), (mean + std).tanh()], dim=1).numpy())


@pytest.mark.parametrize(("obs_dim", "action_dim", "K", "T"), [(3, 1, 9, 40), (30, 5, 2, 1), (4, 2, 1, 3)])
def test_figures_of_any_size(obs_dim, action_dim, K, T):
    g = torch.Generator().manual_seed(0)
    weights = torch.softmax(3 * torch.randn(T, K, generator=g), dim=1)
    obs, states = torch.randn(T, obs_dim, generator=g), torch.randn(K, obs_dim, generator=g)
    actions, means, stds = (
        torch.rand(T, action_dim, generator=g),
        torch.randn(K, action_dim, generator=g),
        torch.ones(K, action_dim),
    )
    paint = functools.partial(draw_state, env_id="gym:Other-v0", low=obs.amin(dim=0), high=obs.amax(dim=0))
    colours = leading_colours(weights)
    numbers = [*range(K)][::-1]
    cards = cards_figure(numbers, states[numbers], means[numbers], stds, weights.mean(dim=0)[numbers], colours, paint)
    assert f"prototype 0\nusage {weights[:, 0].mean():.1%}" in texts(cards)
    timeline = timeline_figure(weights, actions, obs[:, 0], colours, "an episode")
    assert ("the other 4" in texts(timeline)) == (K == 9)
    assert "an episode" in texts(timeline)
    areas = timeline.axes[0].collections
    assert [area.get_label() for area in areas][: len(colours)] == [f"prototype {k}" for k in colours]
    lowest = areas[0].get_paths()[0].vertices[:, 1]
    assert lowest.max() == pytest.approx(weights[:, next(iter(colours))].max().item(), abs=1e-5)
    moments = turning_moments(weights, 3)
    frames = [np.full((4, 4, 3), t, np.uint8) for t in range(T)] if K == 9 else []
    strip = strip_figure(moments, obs, actions, frames, weights, states, means.tanh(), colours, "an episode", paint)
    assert len(strip.axes) == len(moments) * (bool(frames) + 1 + min(3, K))
    heaviest = int(weights[moments[-1]].argmax())
    found = [text for text in texts(strip) if text.startswith(f"{weights[moments[-1]].max():.0%} prototype {heaviest}")]
    assert found
    assert any(f"action {means[heaviest, 0].tanh():+.2f}" in text for text in found) == (action_dim == 1)
    if frames:
        shown = [axes.images[0].get_array()[0, 0, 0] for axes in strip.axes if axes.images]
        assert shown == moments
    for figure in (cards, timeline, strip):
        assert rasterise(figure).std() > 0
