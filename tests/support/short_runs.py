"""One short run a method, for the tests that every method must pass: add a line for yours."""

from pathlib import Path

PROJECT = Path(__file__).parents[2]
CONFIGS = PROJECT / "configs"

TOY = ["--config", PROJECT / "tests" / "support" / "toy.yaml"]
TINY = [
    "--data.init_args.train_size=64",
    "--data.init_args.val_size=10",
    "--data.init_args.test_size=11",
    "--data.init_args.batch_size=16",
    "--trainer.max_steps=9",
    "--trainer.val_check_interval=3",
    "--trainer.log_every_n_steps=1",
    "--resume.every_n_steps=2",
]
SMALL_MAZES = [
    "--data.init_args.height=7",
    "--data.init_args.width=7",
    "--data.init_args.min_path_length=4",
    # without InterventionSuite: its random numbers belong to a rank's share of a batch
    '--trainer.callbacks=[{"class_path": "callbacks.ADMMDiagnostics", "init_args": {"steps": 8}}]',
]
DIGITS = ["--data.init_args.variant=digits8", "--data.init_args.size=8", "--data.init_args.pads=[2]"]

FEW_TRANSITIONS = [
    *("--data.init_args.transitions=64", "--data.init_args.val_transitions=18", "--data.init_args.test_transitions=19"),
    "--data.init_args.batch_size=16",
    "--model.init_args.regularizer.init_args.sync_batch=true",  # the penalty is quadratic in the batch
]
FEW_WINDOWS = [
    *("--data.init_args.seq_len=16", "--data.init_args.eval_windows=10", "--data.init_args.eval_batch_size=4"),
    *("--data.init_args.batch_size=8", "--model.init_args.lb_sync=true"),  # the load of the experts is that of the whole batch
]
FEW_DIGITS = [
    *("--data.init_args.train_size=64", "--data.init_args.val_size=10", "--data.init_args.test_size=22"),
    *("--data.init_args.batch_size=16", "--data.init_args.eval_batch_size=6", "--model.init_args.lb_sync=true"),
    *("--model.init_args.sampling_steps=2", "--model.init_args.quality_samples=0"),  # the distance of so few images is all rounding
]
FEW_SAMPLES = [
    *("--model.init_args.quality_samples=64", "--model.init_args.sample_batch=20", "--model.init_args.calls=[4]"),
    *("--model.init_args.samplers=[tc,lc,theta_trap]", "--model.init_args.eval_times=2"),
]
SMALL_STEPS = ["--model.init_args.lr=5e-5"]  # Adam makes steps of the learning rate even of gradients that are all rounding
FEW_COMPETITORS = [
    *("--model.init_args.num_samples=40", "--model.init_args.reference_steps=20"),
    *("--model.init_args.samplers=[ddim,f_dpm,dpmpp_2m]", "--model.init_args.nfe=[5]"),
]
FEW_SCENES = [
    *("--data.init_args.n_train=64", "--data.init_args.n_val=10", "--data.init_args.n_test=31", "--data.init_args.n_unbiased=20"),
    *("--data.init_args.batch_size=16", "--data.init_args.eval_batch_size=8", "--model.init_args.caption_rows=8"),
]
SHORT_STAGES = ["--model.init_args.stage_steps=[3,1,2,3]", "--model.init_args.weight_decay=0.1"]
SMALL_GRAPH = ["--data.init_args.nodes=60", "--data.init_args.degree=6"]
SEVERAL_EPOCHS = ["--trainer.max_epochs=9", "--trainer.log_every_n_steps=1", "--resume.every_n_steps=2"]
WITHOUT_DROPOUT = [f"--model.init_args.{name}=0" for name in ("attn_dropout", "dropout", "classifier_dropout")]
SAMPLED = ["--data.init_args.num_neighbors=[3,3]", "--data.init_args.batch_size=10"]
SHORT_RUNS: dict[str, list[object]] = {
    "toy": [*TOY, "--model.init_args.dropout=0"],
    "sheaf_admm": ["--config", CONFIGS / "sheaf_admm/sudoku.yaml", *TINY, "--model.init_args.train_horizon=[4,8]"],
    "sheaf_admm/mpnn": ["--config", CONFIGS / "sheaf_admm/sudoku_mpnn.yaml", *TINY],
    "sheaf_admm/maze": ["--config", CONFIGS / "sheaf_admm/maze.yaml", *TINY, *SMALL_MAZES],
    "r2r2": ["--config", CONFIGS / "r2r2/representation.yaml", *TINY[3:], *FEW_TRANSITIONS],
    "gesc": ["--config", CONFIGS / "gesc/gauge_sbm.yaml", *SMALL_GRAPH, *SEVERAL_EPOCHS, *WITHOUT_DROPOUT],
    "gesc/sampled": ["--config", CONFIGS / "gesc/gauge_sbm.yaml", *SMALL_GRAPH, *SEVERAL_EPOCHS, *WITHOUT_DROPOUT, *SAMPLED],
    "gesc/gcn": ["--config", CONFIGS / "gesc/gauge_sbm_gcn.yaml", *SMALL_GRAPH, *SEVERAL_EPOCHS, WITHOUT_DROPOUT[1]],
    "dtop_p": ["--config", CONFIGS / "dtop_p/topics.yaml", *TINY[3:], *FEW_WINDOWS],
    "dtop_p/digits_dit": ["--config", CONFIGS / "dtop_p/digits_dit.yaml", *TINY[3:], *FEW_DIGITS],
    "dfm": ["--config", CONFIGS / "dfm/digits.yaml", *TINY, "--model.init_args.quality_samples=0"],
    "dfm/blocks_uniform": ["--config", CONFIGS / "dfm/blocks_uniform.yaml", *TINY, *FEW_SAMPLES],
    "f_dpm_solver": ["--config", CONFIGS / "f_dpm_solver/digits.yaml", *TINY, *SMALL_STEPS, "--model.init_args.num_samples=0"],
    "f_dpm_solver/ring": ["--config", CONFIGS / "f_dpm_solver/ring.yaml", *TINY, *SMALL_STEPS, *FEW_COMPETITORS],
    "tlvs/scenes_vlm": ["--config", CONFIGS / "tlvs/scenes_vlm.yaml", *TINY[4:], *FEW_SCENES, *SHORT_STAGES],
    "tlvs": ["--config", CONFIGS / "tlvs/scenes.yaml", *TINY[4:], *FEW_SCENES],
    "sheaf_admm/mnist_cnn": ["--config", CONFIGS / "sheaf_admm/mnist_cnn.yaml", *TINY, *DIGITS],
}
