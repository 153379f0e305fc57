from pathlib import Path

from benchmarks.loop_overhead import trainer_beside_plain_loop
from benchmarks.speed_cases.launcher import CONFIG, QUIET


def test_both_loops_train_the_same_model(tmp_path: Path):
    sizes = {"train_size": 64, "val_size": 8, "test_size": 8, "root": tmp_path}
    options = [word for name, value in sizes.items() for word in (f"--data.init_args.{name}", str(value))]
    # raises if the parameters differ after the first epoch
    times = trainer_beside_plain_loop([CONFIG], [*QUIET, *options], pairs=1)
    assert len(times.ours) == len(times.peer) == 1
    assert min(times.ours + times.peer) > 0
