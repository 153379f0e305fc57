import pytest
import torch
from lightning import Trainer
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader

from lightning_modules.sheaf_admm import maze
from lightning_modules.sheaf_admm.agent_module import AgentModule
from lightning_modules.sheaf_admm.baselines import mailboxes_on
from lightning_modules.sheaf_admm.graph import DIRECTIONS, grid_on
from lightning_modules.sheaf_admm.maze import PATH, TOKENS, WALL, MazeTask
from lightning_modules.sheaf_admm.module import RecurrentMPNNModule, SheafADMMModule

BOARD = """
#########
#S..#...#
###.#.#.#
#.#.#.#.#
#.#.###.#
#.#.....#
#.#####.#
#......G#
#########
"""
MARKS = {"#": 1, ".": 2, "S": 3, "G": 4}
WAY = [(1, 2), (1, 3), (2, 3), (3, 3), (4, 3), (5, 3), (5, 4), (5, 5), (5, 6), (5, 7), (6, 7)]
LEARNED_BOX = {"lora_rank": 4, "learned_box": True, "l1": 0.01, "upper": 1.0}
KINDS = {
    "sheaf": (SheafADMMModule, {**LEARNED_BOX, "solver_steps": 2}),
    "mpnn": (RecurrentMPNNModule, {"message_dim": 4}),
    "slot": (RecurrentMPNNModule, {"message_dim": 4, "routing": "receiver_slot", "pooling": "mean"}),
}
QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}


def boards(batch: int = 2) -> dict[str, Tensor]:
    """The maze above and its transposed images, in turn."""
    maze = torch.tensor([[MARKS[mark] for mark in row] for row in BOARD.split()])
    solution = maze.clone()
    solution[tuple(zip(*WAY, strict=True))] = PATH
    turned = [(maze, solution) if k % 2 == 0 else (maze.t(), solution.t()) for k in range(batch)]
    return {name: torch.stack(parts) for name, parts in zip(("maze", "solution"), zip(*turned, strict=True), strict=True)}


def scribble(height: int, width: int, batch: int = 2) -> dict[str, Tensor]:
    """Boards of random tokens."""
    generator = torch.Generator().manual_seed(height * width)
    return {
        "maze": torch.randint(1, 5, (batch, height, width), generator=generator),
        "solution": torch.randint(1, 6, (batch, height, width), generator=generator),
    }


def small_task(**options) -> MazeTask:
    torch.manual_seed(0)
    return MazeTask(**{"state_dim": 6, "edge_dim": 3, "hidden_dim": 16, **options})


def build(kind: str, **options) -> AgentModule:
    task, (module_class, own) = small_task(), KINDS[kind]
    return module_class(task, **{"train_horizon": 3, "eval_horizon": 3, **own, **options})


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def certain(tokens: Tensor) -> Tensor:
    return 50.0 * functional.one_hot(tokens, TOKENS).float()


def patches_by_hand(board: Tensor, outside: int) -> Tensor:
    """Patches of 3 pixels at a stride of 2, cut one pixel at a time, ``[N, B, 9]``."""
    _, height, width = board.shape
    agents = []
    for row in range(1, height, 2):
        for column in range(1, width, 2):
            places = [(row + i, column + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
            agents.append(
                [board[:, r, c] if r < height and c < width else torch.full_like(board[:, 0, 0], outside) for r, c in places]
            )
    return torch.stack([torch.stack(pixels, dim=1) for pixels in agents])


def test_released_parameter_counts():
    assert count(SheafADMMModule(MazeTask(), **LEARNED_BOX)) == 181_859
    assert count(RecurrentMPNNModule(MazeTask(state_dim=84), message_dim=42)) == 182_006
    assert count(RecurrentMPNNModule(MazeTask(state_dim=10, edge_dim=5), message_dim=5)) == 48_806


@pytest.mark.parametrize("size", [(9, 9), (7, 11), (8, 10)])
def test_views_are_one_hot_patches_and_outside_is_wall(size):
    batch, task = scribble(*size), small_task()
    views = task.views(batch)
    assert views.dtype == torch.float32
    tokens = views.unflatten(-1, (9, TOKENS))
    assert (tokens.sum(-1) == 1).all()
    assert torch.equal(tokens.argmax(-1), patches_by_hand(batch["maze"], WALL))
    if size == (8, 10):
        assert (tokens.argmax(-1)[-1] == WALL).float().mean() >= 5 / 9
    assert task.graph_of(batch).num_nodes == len(views)


def test_first_states_are_normalised():
    task = small_task()
    h, f = task.encode(task.views(boards()))
    assert h.shape == (16, 2, 6)
    assert f.shape == (16, 2, 16)
    assert torch.allclose(h.mean(-1), torch.zeros(16, 2), atol=1e-5)
    assert torch.allclose(h.var(-1, unbiased=False), torch.ones(16, 2), atol=1e-2)


def test_decoder_is_the_stated_formula():
    task, (x, view) = small_task().double(), (torch.randn(2, 4, 3, width, dtype=torch.float64) for width in (6, 54))
    weight = dict(task.decoder.named_parameters())
    joined = torch.cat([view[0].expand(2, -1, -1, -1), x], -1)
    normal = joined / (joined.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    hidden = functional.gelu(normal @ weight["1.weight"].T, approximate="tanh")
    assert torch.allclose(task.decode(x, view[0]), (hidden @ weight["3.weight"].T).unflatten(-1, (9, 6)), atol=1e-12)


@pytest.mark.parametrize("size", [(9, 9), (8, 10)])
def test_loss_is_the_mean_over_the_pixels_inside(size):
    batch, task = scribble(*size), small_task()
    tokens = patches_by_hand(batch["solution"], -1)
    logits = torch.randn(2, *tokens.shape, TOKENS, generator=torch.Generator().manual_seed(1))
    inside = tokens >= 0
    assert inside.all() == (size == (9, 9))
    wanted = logits.log_softmax(-1).gather(-1, tokens.clamp_min(0).expand(2, -1, -1, -1).unsqueeze(-1)).squeeze(-1)
    assert task.loss(logits, batch).item() == pytest.approx(-wanted[:, inside].mean().item(), rel=1e-5)
    outside = torch.where(inside.unsqueeze(-1), logits, 1e3 * logits)
    assert task.loss(outside, batch).item() == pytest.approx(task.loss(logits, batch).item(), rel=1e-6)


@pytest.mark.parametrize("size", [(9, 9), (8, 10)])
def test_the_answer_is_the_mean_of_the_agents_that_see_a_pixel(size):
    height, width = size
    batch, task = scribble(*size), small_task()
    agents = len(task.views(batch))
    logits = torch.randn(agents, 2, 9, TOKENS, generator=torch.Generator().manual_seed(1))
    answer = task.aggregate(logits, batch)
    assert answer.shape == (2, height * width, TOKENS)
    columns = len(range(1, width, 2))
    for row, column in ((0, 0), (1, 2), (2, 2), (4, 3), (height - 1, width - 1)):
        seen = [
            logits[agent, :, 3 * (row - top) + column - left]
            for agent in range(agents)
            for top, left in [(2 * (agent // columns), 2 * (agent % columns))]
            if 0 <= row - top < 3 and 0 <= column - left < 3
        ]
        expected = torch.stack(seen).mean(0)
        assert torch.allclose(answer[:, row * width + column], expected, atol=1e-6)
        if (row, column) == (2, 2):
            assert len(seen) == 4


def agents_say(tokens: Tensor) -> Tensor:
    """Certain logits of agents that all say the same of a pixel."""
    return certain(patches_by_hand(tokens, WALL))


def measured(task: MazeTask, answer: Tensor, batch: dict[str, Tensor]) -> dict[str, float]:
    metrics = task.metrics("test/", "_at_3")
    metrics.update(**task.metric_inputs(answer, batch))
    return {name: value.item() for name, value in metrics.compute().items()}


def test_right_answers_solve_every_maze():
    task, batch = small_task(), boards()
    logits = agents_say(batch["solution"])
    answer = task.aggregate(logits, batch)
    assert torch.equal(answer.argmax(-1), task.targets(batch))
    assert task.correct(answer.argmax(-1), batch).tolist() == [True, True]
    assert measured(task, answer, batch) == {"test/solved_at_3": 1.0, "test/open_accuracy_at_3": 1.0}
    assert task.loss(logits, batch).item() == pytest.approx(0.0, abs=1e-6)


def test_solved_means_exactly_the_path():
    task, batch = small_task(), boards(4)
    said = batch["solution"].clone()
    said[0, 0, 0] = 2  # a wall called open does not matter
    said[0, 1, 1] = 4  # nor does a start called goal
    said[1, 1, 4] = PATH  # an open pixel too many
    said[2][WAY[3]] = 2  # one pixel of the path missing
    said[3, 0, 0] = PATH  # a wall marked as path
    answer = task.aggregate(agents_say(said), batch)
    assert task.correct(answer.argmax(-1), batch).tolist() == [True, False, False, False]
    assert task.correct(answer.argmax(-1).expand(3, -1, -1), batch).shape == (3, 4)
    open_pixels = (batch["maze"] != WALL).sum().item()
    assert measured(task, answer, batch) == {
        "test/solved_at_3": 1 / 4,
        "test/open_accuracy_at_3": pytest.approx(1 - 2 / open_pixels),
    }


def test_the_learned_box_starts_at_its_numbers():
    module = build("sheaf", l1=0.02, upper=0.7)
    batch = boards()
    objective, laplacian, _ = module._problem(batch, module.task.views(batch))
    assert objective.l1.shape == objective.high.shape == (16, 2, 6)
    assert torch.allclose(objective.l1, torch.tensor(0.02), atol=1e-6)
    assert torch.allclose(objective.high, torch.tensor(0.7), atol=1e-6)
    assert objective.low == 0.0
    assert objective.l1.stride() == laplacian.arranged(objective.Q_NBd).stride() == objective.Q_NBd.stride()
    states = module.iterates(batch, [1, 2, 3])
    for x in states.values():
        assert x.min() >= 0
        assert x.max() <= 0.7 + 1e-6
    assert (states[3] > 0).any()
    module._window_loss(states, batch).backward()
    assert module.l1_head.weight.grad.abs().max() > 0
    assert module.upper_head.bias.grad is not None
    fixed = build("sheaf", l1=0.02, upper=0.7, learned_box=False)
    fixed.load_state_dict({name: value for name, value in module.state_dict().items() if not name.startswith(("l1_", "upper_"))})
    assert torch.allclose(fixed(batch), module(batch), atol=1e-5)


@pytest.mark.parametrize("options", [{"l1": 0.0}, {"upper": None}])
def test_a_learned_box_needs_its_start(options):
    with pytest.raises(ValueError, match="learned_box starts at l1 > 0 and at upper"):
        build("sheaf", **options)


@pytest.mark.parametrize("kind", KINDS)
def test_training_makes_the_loss_fall(kind):
    module, batch = build(kind, lr=1e-2, warmup_steps=2), boards(4)
    before = module._window_loss(module.iterates(batch, [2, 3]), batch).item()
    trainer = Trainer(max_steps=20, max_epochs=-1, gradient_clip_val=1.0, enable_checkpointing=False, **QUIET)
    trainer.fit(module, DataLoader([batch], batch_size=None))
    assert module._window_loss(module.iterates(batch, [2, 3]), batch).item() < 0.7 * before


@pytest.mark.parametrize("kind", ["sheaf", "mpnn"])
def test_compiled_iterations_give_the_same_gradients(kind):
    def gradients(module: AgentModule) -> list[Tensor]:
        module.zero_grad()
        module._window_loss(module.iterates(boards(), [2, 3]), boards()).backward()
        return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]

    module = build(kind)
    eager = gradients(module)
    module.compile(backend="aot_eager", fullgraph=True)
    for expected, gradient in zip(eager, gradients(module), strict=True):
        assert torch.allclose(gradient, expected, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_one_module_serves_boards_of_every_size(kind):
    module = build(kind)
    answers = {size: module(scribble(*size)) for size in ((9, 9), (19, 19), (9, 13))}
    for (height, width), answer in answers.items():
        batch = scribble(height, width)
        assert answer.shape == (2, height * width, TOKENS)
        assert torch.equal(module(batch), answer)
        module._window_loss(module.iterates(batch, [2, 3]), batch).backward()


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_evaluation_keeps_serves_training(kind):
    for kept in (maze.patch_grid, grid_on, mailboxes_on):
        kept.cache_clear()
    module, batch = build(kind), scribble(9, 13)
    with torch.inference_mode():
        evaluated = module(batch)
    module._window_loss(module.iterates(batch, [2, 3]), batch).backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    assert torch.equal(module(batch), evaluated)


@pytest.mark.parametrize("kind", ["sheaf", "mpnn"])
def test_suites_of_other_sizes_are_reported_by_name(kind):
    module = build(kind, test_horizons=[6], test_suites=["2x", "2xW"])
    loaders = [DataLoader([batch], batch_size=None) for batch in (boards(), scribble(17, 17), scribble(9, 17))]
    reported: dict[str, float] = {}
    for part in Trainer(**QUIET).test(module, loaders, verbose=False):
        reported.update(part)
    names = {f"{name}{at}" for name in ("solved", "open_accuracy") for at in ("", "_at_6")} | {"loss", "iterations_to_solve"}
    assert set(reported) == {f"test/{suite}{name}" for suite in ("", "2x/", "2xW/") for name in names}
    batch = scribble(17, 17)
    marked = module(batch).argmax(-1) == PATH
    right = (marked == (batch["solution"].flatten(1) == PATH))[batch["maze"].flatten(1) != WALL]
    assert reported["test/2x/open_accuracy"] == pytest.approx(right.float().mean().item())


IMAGES = {
    "mirrored": (lambda board: board.flip(-1), lambda down, right: (down, -right)),
    "upside down": (lambda board: board.flip(-2), lambda down, right: (-down, right)),
    "transposed": (lambda board: board.transpose(-1, -2), lambda down, right: (right, down)),
    "turned": (lambda board: board.rot90(1, (-2, -1)), lambda down, right: (-right, down)),
}


def move_weights(module: AgentModule, image: str) -> None:
    """Let every weight that belongs to a pixel of the patch or to a direction belong to its image."""
    move_board, move_step = IMAGES[image]
    pixel = move_board(torch.arange(9).view(3, 3)).flatten()  # new place -> old place
    steps = list(DIRECTIONS.values())
    slot = torch.empty(8, dtype=torch.long)  # new direction -> old direction
    for old, step in enumerate(steps):
        slot[steps.index(move_step(*step))] = old
    task = module.task

    def by_pixel(weight: Tensor, dim: int) -> Tensor:
        return weight.unflatten(dim, (9, TOKENS)).index_select(dim, pixel).flatten(dim, dim + 1)

    def by_slot(weight: Tensor) -> Tensor:
        return weight.unflatten(0, (8, -1))[slot].flatten(0, 1)

    norm, dense = task.encoder[0].weight, task.encoder[1].weight
    moved = [(norm, by_pixel(norm, 0)), (dense, by_pixel(dense, 1))]
    norm, dense = task.decoder[0].weight, task.decoder[1].weight
    moved.append((norm, torch.cat([by_pixel(norm[:54], 0), norm[54:]])))
    moved.append((dense, torch.cat([by_pixel(dense[:, :54], 1), dense[:, 54:]], dim=1)))
    moved += [(parameter, by_pixel(parameter, 0)) for parameter in task.decoder[3].parameters()]
    if isinstance(module, SheafADMMModule):
        maps = module.restriction_maps
        moved.append((maps.base, maps.base[slot]))
        moved += [(p, by_slot(p)) for head in (maps.left_head, maps.right_head) for p in head.parameters()]
    else:
        moved += [(p, by_slot(p)) for p in (module.mpnn.message_weight, module.mpnn.message_bias)]
        if module.mpnn.by_slot:
            receive = module.mpnn.receive[0].weight
            moved.append((receive, receive.unflatten(1, (8, -1))[:, slot].flatten(1)))
    for parameter, value in [(parameter, value.clone()) for parameter, value in moved]:
        parameter.copy_(value)


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_dihedral_image_of_the_weights_reads_the_dihedral_image_of_a_maze(kind, image):
    module = build(kind).double()
    for parameter in module.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape, dtype=parameter.dtype))
    batch = scribble(9, 13)
    move_board, _ = IMAGES[image]
    moved = {name: move_board(board) for name, board in batch.items()}
    expected = move_board(module(batch).mT.unflatten(-1, (9, 13))).flatten(2).mT
    assert (module(moved) - expected).abs().max() > 1e-2
    move_weights(module, image)
    assert torch.allclose(module(moved), expected, atol=1e-9)
