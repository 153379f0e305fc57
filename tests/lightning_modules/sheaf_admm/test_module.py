import copy

import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader

from lightning_modules.sheaf_admm.agent_module import AgentModule
from lightning_modules.sheaf_admm.module import RecurrentMPNNModule, SheafADMMModule
from lightning_modules.sheaf_admm.sudoku import SudokuTask

# puzzles of six givens and their only solutions, row by row
PUZZLES = [
    ("0002300040200340", "1432321441232341"),
    ("0020020101003400", "1324423121433412"),
    ("2010000042000320", "2413314242311324"),
    ("0032030000404100", "1432231432414123"),
    ("4001102000003100", "4231132424133142"),
    ("0100201000010023", "4132231432411423"),
    ("0203132000400000", "4213132431422431"),
    ("0410000400232000", "3412123441232341"),
]
SMALL = {"train_horizon": 4, "eval_horizon": 4, "lr": 1e-2, "warmup_steps": 2}
QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
KINDS = {
    "sheaf": (SheafADMMModule, {"solver_steps": 2}),
    "lora": (SheafADMMModule, {"solver_steps": 2, "lora_rank": 2}),
    "mpnn": (RecurrentMPNNModule, {"message_dim": 4}),
    "slot": (RecurrentMPNNModule, {"message_dim": 4, "routing": "receiver_slot", "pooling": "mean"}),
}


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def puzzles() -> dict[str, torch.Tensor]:
    digits = [[[int(digit) for digit in board] for board in pair] for pair in PUZZLES]
    puzzle, solution = torch.tensor(digits).view(-1, 2, 4, 4).unbind(1)
    return {"puzzle": puzzle, "solution": solution}


def loader() -> DataLoader:
    return DataLoader([puzzles()], batch_size=None)


def build(kind: str, **options) -> AgentModule:
    torch.manual_seed(0)
    module_class, own = KINDS[kind]
    return module_class(SudokuTask((2, 2), cell_dim=4, model_dim=16, decoder_dim=16), **{**SMALL, **own, **options})


@pytest.mark.parametrize(("cell_dim", "expected"), [(32, 1_227_888), (25, 879_155), (56, 3_026_184)])
def test_parameters_of_the_released_mpnn(cell_dim, expected):
    assert count(RecurrentMPNNModule(SudokuTask((3, 3), cell_dim=cell_dim))) == expected


def test_parameters_of_the_released_sheaf_admm():
    assert count(SheafADMMModule(SudokuTask((3, 3)))) == 543_025
    assert count(SheafADMMModule(SudokuTask((2, 2), cell_dim=8, model_dim=32, decoder_dim=64))) == 24_006


@pytest.mark.parametrize("kind", KINDS)
def test_thirty_steps_make_the_loss_fall(kind):
    module = build(kind)
    batch = puzzles()
    before = module._window_loss(module.iterates(batch, [3, 4]), batch).item()
    trainer = Trainer(max_steps=30, max_epochs=-1, gradient_clip_val=1.0, enable_checkpointing=False, **QUIET)
    trainer.fit(module, loader())
    after = module._window_loss(module.iterates(batch, [3, 4]), batch).item()
    assert trainer.global_step == 30
    assert after < 0.7 * before


@pytest.mark.parametrize("kind", ["sheaf", "slot"])
def test_compiled_iterations_give_the_same_gradients(kind):
    def gradients(module: AgentModule) -> list[torch.Tensor]:
        module.zero_grad()
        module._window_loss(module.iterates(puzzles(), [3, 4]), puzzles()).backward()
        return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]

    module = build(kind)
    eager = gradients(module)
    module.compile(backend="aot_eager", fullgraph=True)
    for expected, gradient in zip(eager, gradients(module), strict=True):
        assert torch.allclose(gradient, expected, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0


def test_two_ranks_draw_equal_horizons():
    first, second, other = (build("sheaf", train_horizon=(2, 5), horizon_seed=seed) for seed in (0, 0, 1))
    torch.manual_seed(7)
    drawn = [first.sample_horizon(step) for step in range(400)]
    torch.manual_seed(8)
    assert drawn == [second.sample_horizon(step) for step in range(400)]
    shares = torch.tensor(drawn).bincount()[2:] / 400
    assert shares.tolist() == pytest.approx([0.25] * 4, abs=0.07)
    assert drawn != [other.sample_horizon(step) for step in range(400)]
    other.train_horizon = 4
    assert {other.sample_horizon(step) for step in range(9)} == {4}


@pytest.mark.parametrize("kind", KINDS)
def test_no_iterations_decode_the_start(kind):
    module = build(kind, train_horizon=0, eval_horizon=0)
    batch = puzzles()
    h, _ = module.task.encode(module.task.views(batch))
    start = module.mpnn.start(h) if isinstance(module, RecurrentMPNNModule) else h
    assert torch.equal(module(batch), module.task.aggregate(module.task.decode(start, None), batch))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("horizon", [0, 1, 3])
def test_every_trained_parameter_takes_part(kind, horizon):
    module = build(kind, train_horizon=horizon, eval_horizon=3, loss_window=1)
    batch = puzzles()
    module._window_loss(module.iterates(batch, [horizon]), batch).backward()
    unused = [name for name, parameter in module.named_parameters() if parameter.requires_grad != (parameter.grad is not None)]
    assert not unused


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_precision_coordinates_in_full_precision(kind):
    module = build(kind)
    batch = puzzles()
    exact = module._window_loss(module.iterates(batch, [3, 4]), batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = module.iterates(batch, [3, 4])
        loss = module._window_loss(states, batch)
    loss.backward()
    assert loss.item() == pytest.approx(exact.item(), rel=0.05)
    assert kind in ("mpnn", "slot") or states[4].dtype == torch.float32


def test_loss_is_the_mean_over_the_window():
    module = build("sheaf")
    batch = puzzles()
    states = module.iterates(batch, range(5))
    losses = [module.task.loss(module.task.decode(states[k], None), batch) for k in (3, 4)]
    assert list(module._window(4)) == [3, 4]
    window = module._window_loss({k: states[k] for k in module._window(4)}, batch)
    assert window.item() == pytest.approx(sum(losses).item() / 2, rel=1e-5)
    assert losses[0].item() != losses[1].item()


@pytest.mark.parametrize("kind", ["sheaf", "mpnn"])
def test_a_test_reports_every_horizon(kind):
    module = build(kind, test_horizons=[8, 2])
    trainer = Trainer(**QUIET)
    (reported,) = trainer.test(module, loader(), verbose=False)
    names = {f"{name}{at}" for name in ("solved", "cell_accuracy", "blank_accuracy") for at in ("", "_at_2", "_at_8")}
    assert set(reported) == {f"test/{name}" for name in names | {"loss", "iterations_to_solve"}}
    module.eval_horizon = 8
    right = module(puzzles()).argmax(-1) == puzzles()["solution"].flatten(1)
    assert reported["test/cell_accuracy_at_8"] == pytest.approx(right.float().mean().item())
    (validated,) = trainer.validate(build(kind), loader(), verbose=False)
    assert {"val/loss", "val/solved", "val/cell_accuracy"} <= set(validated)
    assert validated["val/cell_accuracy"] == reported["test/cell_accuracy"]


def test_history_ends_with_the_answer():
    module = build("sheaf")
    history = module.admm_history(puzzles(), steps=4)
    assert history.primal.shape == history.dual.shape == (4, 12, 8)
    assert history.disagreement.shape == history.correct.shape == (4, 8)
    assert torch.equal(history.answers[-1], module(puzzles()).argmax(-1))
    assert torch.equal(history.correct, (history.answers == puzzles()["solution"].flatten(1)).all(-1))


def test_learning_rate_rises_and_stays():
    module = build("sheaf", lr=0.5, warmup_steps=4)
    configured = module.configure_optimizers()
    optimizer, scheduler = configured["optimizer"], configured["lr_scheduler"]["scheduler"]
    rates = []
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([0.125, 0.25, 0.375, 0.5, 0.5, 0.5])


def assert_loads(path, module_class: type[AgentModule], trained: AgentModule, **options) -> AgentModule:
    assert torch.load(path, weights_only=True)["state_dict"]
    loaded = module_class.load_from_checkpoint(path, **options)
    assert torch.equal(loaded(puzzles()), trained(puzzles()))
    return loaded


@pytest.mark.parametrize("kind", ["lora", "slot"])
def test_a_checkpoint_of_a_script_loads_without_arguments(kind, tmp_path):
    module = build(kind, train_horizon=(2, 4))
    trainer = Trainer(max_steps=2, enable_checkpointing=False, **QUIET)
    trainer.fit(module, loader())
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    loaded = assert_loads(tmp_path / "model.ckpt", type(module), module)
    assert loaded.train_horizon == (2, 4)
    assert loaded.hparams["task"]["init_args"]["cell_dim"] == 4
    assert_loads(tmp_path / "model.ckpt", type(module), module, task=copy.deepcopy(module.task))


def test_a_checkpoint_of_the_command_line_loads_without_arguments(tmp_path):
    arguments = [
        "--model=lightning_modules.SheafADMMModule",
        "--model.train_horizon=[2,4]",
        "--model.eval_horizon=4",
        "--model.task=lightning_modules.SudokuTask",
        "--model.task.box_shape=[2,2]",
        "--model.task.cell_dim=4",
    ]
    cli = LightningCLI(
        LightningModule,
        subclass_mode_model=True,
        run=False,
        args=arguments,
        save_config_callback=None,
        trainer_defaults={**QUIET, "max_steps": 1, "enable_checkpointing": False},
    )
    cli.trainer.fit(cli.model, loader())
    cli.trainer.save_checkpoint(tmp_path / "model.ckpt")
    loaded = assert_loads(tmp_path / "model.ckpt", SheafADMMModule, cli.model)
    assert loaded.train_horizon == (2, 4)


def test_the_first_iteration_that_leaves_the_numbers_is_named():
    module = build("sheaf")
    with torch.no_grad():
        module.slope_head.bias.fill_(-3e38)
        module.curvature_head.bias.fill_(-50.0)
    trainer = Trainer(max_steps=3, enable_checkpointing=False, **QUIET)
    with pytest.raises(FloatingPointError, match="step 0 is not finite.*x is first not finite at iteration 1 of 4"):
        trainer.fit(module, loader())


def test_a_broken_parameter_is_named():
    module = build("mpnn")
    with torch.no_grad():
        module.mpnn.message_bias[0] = torch.nan
    trainer = Trainer(max_steps=3, enable_checkpointing=False, **QUIET)
    with pytest.raises(FloatingPointError, match="parameter mpnn.message_bias"):
        trainer.fit(module, loader())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_horizon": 1}, "train_horizon=1 must be 0 or at least loss_window=2"),
        ({"train_horizon": (5, 4)}, "must not be greater"),
        ({"eval_horizon": -1}, "eval_horizon=-1"),
        ({"test_horizons": [-2]}, "must not be negative"),
        ({"solver": "newton"}, "solver must be one of cg, gd, exact"),
        ({"grad_window": 1}, "must cover loss_window=2"),
    ],
)
def test_contradictions_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        build("sheaf", **options)
