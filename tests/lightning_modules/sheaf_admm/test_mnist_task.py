import math

import pytest
import torch
from lightning import Trainer
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader

from lightning_modules.sheaf_admm import mnist
from lightning_modules.sheaf_admm.agent_module import AgentModule
from lightning_modules.sheaf_admm.baselines import mailboxes_on
from lightning_modules.sheaf_admm.graph import grid_on
from lightning_modules.sheaf_admm.mnist import MNISTPatchTask
from lightning_modules.sheaf_admm.module import RecurrentMPNNModule, SheafADMMModule

RELEASED = {"lora_rank": 8, "lora_init": "legacy", "l1": 0.006337180166370117, "lower": None}
KINDS = {
    "released": (SheafADMMModule, {**RELEASED, "lora_rank": 2, "consensus": "hard", "start": "released"}),
    "dual": (SheafADMMModule, {**RELEASED, "lora_rank": 2, "consensus": "hard"}),
    "soft": (SheafADMMModule, {**RELEASED, "lora_rank": 0, "gamma": 5.0}),
    "mpnn": (RecurrentMPNNModule, {"message_dim": 4}),
}
QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}


def images(size: int = 14, batch: int = 3) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(size)
    return {
        "image": torch.rand(batch, size, size, generator=generator),
        "label": torch.randint(10, (batch,), generator=generator),
    }


def small_task(**options) -> MNISTPatchTask:
    torch.manual_seed(0)
    return MNISTPatchTask(**{"state_dim": 6, "edge_dim": 3, "hidden_dim": 16, **options})


def build(kind: str, task: MNISTPatchTask | None = None, **options) -> AgentModule:
    module_class, own = KINDS[kind]
    return module_class(task or small_task(), **{"train_horizon": 4, "eval_horizon": 4, **own, **options})


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_released_parameter_counts():
    assert count(SheafADMMModule(MNISTPatchTask(), **RELEASED, consensus="hard", start="released")) == 1_081_835


def test_views_are_patches_and_outside_is_black():
    task, batch = small_task(), images(14)
    views = task.views(batch)
    assert views.shape == (25, 3, 9)
    assert torch.equal(views[6], batch["image"][:, 3:6, 3:6].flatten(1))
    # the centre of the last patch is the image's last but one pixel on the diagonal: five of its pixels lie outside
    assert torch.equal(views[24].view(3, 3, 3)[:, :2, :2], batch["image"][:, 12:, 12:])
    assert views[24].view(3, 3, 3)[:, 2].eq(0).all()
    assert views[24].view(3, 3, 3)[:, :, 2].eq(0).all()
    assert task.graph_of(batch).num_edges == 72
    assert small_task(connectivity=4).graph_of(batch).num_edges == 40


def test_encoder_is_the_stated_formula():
    task = small_task().double()
    weight, view = dict(task.named_parameters()), torch.rand(4, 2, 9, dtype=torch.float64)
    a = view @ weight["embed.weight"].T
    normal = a / (a.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    f = a + functional.gelu(normal @ weight["mlp.1.weight"].T, approximate="tanh") @ weight["mlp.3.weight"].T
    h = f @ weight["to_state.0.weight"].T
    h = (h - h.mean(-1, keepdim=True)) / (h.var(-1, keepdim=True, unbiased=False) + 1e-6).sqrt()
    for ours, expected in zip(task.encode(view), (h, f), strict=True):
        assert torch.allclose(ours, expected, atol=1e-12)
    x = torch.randn(3, 4, 2, 6, dtype=torch.float64)
    class_weight, _ = task.decoder.parameters()
    assert torch.allclose(task.decode(x, view), x @ class_weight.T, atol=1e-12)


def test_the_vote_is_the_mean_of_the_probabilities():
    task, batch = small_task(), images()
    logits = torch.randn(25, 3, 10, generator=torch.Generator().manual_seed(1))
    answer = task.aggregate(logits, batch)
    assert answer.shape == (3, 1, 10)
    odds = logits.exp() / logits.exp().sum(-1, keepdim=True)
    assert torch.allclose(answer.exp()[:, 0], sum(odds) / 25, atol=1e-6)
    # one agent that is sure cannot outvote many that lean the other way, as it could with a mean of logits
    loud = torch.zeros(25, 1, 10)
    loud[0, 0, 3] = 100.0
    loud[1:, 0, 7] = 2.0
    assert task.aggregate(loud, batch).argmax(-1).item() == 7
    assert loud.mean(0).argmax(-1).item() == 3


def test_dropped_agents_have_no_vote():
    task = small_task()
    logits = torch.randn(25, 2, 10, generator=torch.Generator().manual_seed(1))
    dropped = torch.zeros(2, 25, dtype=torch.bool)
    dropped[0, [3, 8]] = True
    answer = task.aggregate(logits, {"dropped": dropped})
    left = [agent for agent in range(25) if agent not in (3, 8)]
    assert torch.allclose(answer[0, 0].exp(), logits[left, 0].softmax(-1).mean(0), atol=1e-6)
    assert torch.allclose(answer[1, 0].exp(), logits[:, 1].softmax(-1).mean(0), atol=1e-6)
    assert answer.exp().sum(-1).flatten().tolist() == pytest.approx([1, 1])


def test_loss_of_ignorance_and_of_knowledge():
    task, batch = small_task(), images()
    certain = 50.0 * functional.one_hot(batch["label"], 10).float().expand(25, -1, -1)
    ignorant = torch.zeros(25, 3, 10)
    assert task.loss(ignorant, batch).item() == pytest.approx(math.log(10))
    assert task.loss(torch.stack([ignorant, certain]), batch).item() == pytest.approx(math.log(10) / 2)
    half = torch.cat([ignorant[:5], certain[5:]])
    assert task.loss(half, batch).item() == pytest.approx(math.log(10) * 5 / 25)


def test_accuracy_counts_images():
    task, batch = small_task(), images()
    answer = functional.one_hot(batch["label"], 10).float().unsqueeze(1)
    answer[1] = answer[1].roll(1, -1)
    metrics = task.metrics("test/pad4/", "_at_8")
    metrics.update(**task.metric_inputs(answer, batch))
    assert {name: value.item() for name, value in metrics.compute().items()} == {"test/pad4/accuracy_at_8": pytest.approx(2 / 3)}
    assert task.correct(answer.argmax(-1), batch).tolist() == [True, False, True]


def with_block(batch: dict[str, Tensor], agent: int, value: float) -> dict[str, Tensor]:
    """The same images with one agent's patch painted over."""
    image, (row, column) = batch["image"].clone(), divmod(agent, 5)
    image[:, 3 * row : 3 * row + 3, 3 * column : 3 * column + 3] = value
    return {**batch, "image": image}


@pytest.mark.parametrize("kind", ["released", "dual", "soft"])
def test_nobody_hears_a_dropped_agent(kind):
    module, batch = build(kind).double(), images()
    batch["image"] = batch["image"].double()
    dropped = torch.zeros(3, 25, dtype=torch.bool)
    dropped[:2, 12] = True
    batch["dropped"] = dropped
    assert module.task.edge_mask(batch).shape == (72, 3)
    one, other = (module(with_block(batch, 12, value)) for value in (0.0, 1.0))
    # nobody, but for a rounding that "released" makes: its first residual holds eps (v - z) of every agent, heard or not, and the
    # step lengths of CG are inner products over all agents
    assert (one - other)[:2].abs().max() <= (1e-6 if kind == "released" else 0)
    assert (one[2] - other[2]).abs().max() > 1e-6  # here it was not dropped
    assert (module(with_block(batch, 13, 1.0)) - module(batch)).abs().amax(-1).min() > 1e-6


def test_edges_of_dropped_agents_are_silent():
    task, batch = small_task(), images()
    assert task.edge_mask(batch) is None
    batch["dropped"] = torch.zeros(3, 25, dtype=torch.bool)
    batch["dropped"][1, [0, 7]] = True
    mask, (u, v) = task.edge_mask(batch), task.graph_of(batch).edge_index
    gone = {0, 7}
    for edge, ends in enumerate(zip(u.tolist(), v.tolist(), strict=True)):
        assert mask[edge].tolist() == [1, 0 if gone & set(ends) else 1, 1]
    assert mask[:, 1].sum() == 72 - 3 - 8


def test_message_passing_refuses_dropped_agents():
    batch = {**images(), "dropped": torch.zeros(3, 25, dtype=torch.bool)}
    with pytest.raises(ValueError, match="dropout_mode to zero_pixels"):
        build("mpnn")(batch)


def test_a_pooled_readout_refuses_dropped_agents():
    task, batch = small_task(readout="pooled"), {**images(), "dropped": torch.zeros(3, 25, dtype=torch.bool)}
    with pytest.raises(ValueError, match="readout='pooled' cannot leave agents out"):
        task.edge_mask(batch)


@pytest.mark.parametrize("kind", ["soft", "mpnn"])
def test_the_pooled_readout_sees_the_mean_state(kind):
    task, batch = small_task(readout="pooled"), images()
    x = torch.randn(2, 25, 3, 6)
    logits = task.decode(x, task.views(batch))
    assert logits.shape == (2, 1, 3, 10)
    assert torch.allclose(logits[:, 0], task.decoder(x.mean(1)), atol=1e-6)
    module = build(kind, task)
    state = module.iterates(batch, [4])[4]
    assert torch.allclose(module(batch)[:, 0].exp(), task.decoder(state.mean(0)).softmax(-1), atol=1e-6)
    module._window_loss(module.iterates(batch, [3, 4]), batch).backward()
    with pytest.raises(ValueError, match="'vote' or 'pooled', not 'max'"):
        small_task(readout="max")


@pytest.mark.parametrize("kind", KINDS)
def test_training_makes_the_loss_fall(kind):
    module, batch = build(kind, lr=1e-2, warmup_steps=2), images(batch=6)
    before = module._window_loss(module.iterates(batch, [3, 4]), batch).item()
    trainer = Trainer(max_steps=30, max_epochs=-1, gradient_clip_val=1.0, enable_checkpointing=False, **QUIET)
    trainer.fit(module, DataLoader([batch], batch_size=None))
    assert module._window_loss(module.iterates(batch, [3, 4]), batch).item() < 0.9 * before


@pytest.mark.parametrize("kind", KINDS)
def test_one_module_serves_framed_images(kind):
    for kept in (mnist.patch_grid, grid_on, mailboxes_on):
        kept.cache_clear()
    module, answers = build(kind), {}
    for size in (14, 18, 22, 30):
        with torch.inference_mode():
            answers[size] = module(images(size))
    for size, answer in answers.items():
        assert torch.equal(module(images(size)), answer)
        module._window_loss(module.iterates(images(size), [3, 4]), images(size)).backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_suites_are_reported_by_name():
    module = build("soft", test_horizons=[8], test_suites=["pad4", "drop10_removed"])
    batches = [images(), images(22), {**images(batch=2), "dropped": torch.rand(2, 25) < 0.3}]
    reported: dict[str, float] = {}
    for part in Trainer(**QUIET).test(module, [DataLoader([batch], batch_size=None) for batch in batches], verbose=False):
        reported.update(part)
    names = ("loss", "accuracy", "accuracy_at_8", "iterations_to_solve")
    assert set(reported) == {f"test/{suite}{name}" for suite in ("", "pad4/", "drop10_removed/") for name in names}
    for suite, batch in zip(("", "pad4/", "drop10_removed/"), batches, strict=True):
        right = module(batch).argmax(-1)[:, 0] == batch["label"]
        assert reported[f"test/{suite}accuracy"] == pytest.approx(right.float().mean().item())
