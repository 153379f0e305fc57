from typing import Any

import numpy as np
import pytest
import torch

from callbacks.figures import rasterise
from callbacks.routing_figures import active_figure, count_figure, depth_figure, threshold_figure
from callbacks.routing_stats import RoutingStats

STEPS = [10, 20, 30]
ACTIVE = torch.tensor([[1.0, 3.0], [2.0, 4.0], [2.0, 6.0]])


def test_the_figures_show_the_numbers():
    axes = active_figure(STEPS, ACTIVE, target=4).axes[0]
    assert np.allclose(axes.lines[0].get_xydata(), [[10, 2], [20, 3], [30, 4]])
    assert np.allclose(axes.lines[1].get_ydata(), 4)
    left, right = threshold_figure(STEPS, torch.tensor([0.4, 0.5, 0.6]), ACTIVE).axes
    assert np.allclose(left.lines[0].get_ydata(), [0.4, 0.5, 0.6])
    assert np.allclose(right.lines[1].get_ydata(), [3, 4, 6])
    assert len(threshold_figure(STEPS, ACTIVE / 10, None).axes) == 1
    image = depth_figure(STEPS, ACTIVE).axes[0].images[0]
    assert np.allclose(image.get_array(), ACTIVE.T)
    patch: Any = count_figure(torch.tensor([[0, 3, 1], [0, 0, 4]])).axes[0].patches[0]
    assert np.allclose(patch.get_data()[0], [0, 75, 25])
    assert rasterise(depth_figure([10], ACTIVE[:1])).std() > 0


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="got 0"):
        RoutingStats(0)


def test_its_state_is_kept(tmp_path: Any):
    stats = RoutingStats()
    stats._steps, stats._history["active"], stats._counts = [10], [ACTIVE[0]], torch.ones(2, 3)
    torch.save(stats.state_dict(), tmp_path / "state")
    loaded = RoutingStats()
    loaded.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert loaded._steps == [10]
    assert torch.equal(loaded._history["active"][0], ACTIVE[0])
