"""Metrics on two ranks and in one process."""

import tempfile
from pathlib import Path

import torch
from torch import Tensor, distributed, multiprocessing
from torchmetrics import Metric

from lightning_modules.tlvs.benchmarks import CHAIR, POPE, AMBERDiscriminative, AMBERGenerative, HallusionBench, Lexicon, MMHal
from lightning_modules.tlvs.benchmarks.mmhal import QUESTION_TYPES

QUESTIONS = 41
GENERATOR = torch.Generator().manual_seed(3)
SAID, TRUE = torch.rand(2, QUESTIONS, generator=GENERATOR) > 0.4


def share_of_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    scores = [metric.compute() for metric in scored(range(rank, QUESTIONS, 2))]
    torch.save(scores, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def scored(rows: range) -> list[Metric]:
    """Score the same made-up answers on these rows alone."""
    words = ["dog", "cat", "car", "tree"]
    records = [
        {
            "category": "VD",
            "subcategory": "x",
            "visual_input": "1" if i % 3 == 0 else "2",
            "set_id": i // 6,
            "figure_id": i % 3,
            "question_id": i // 3 % 2,
            "gt_answer": int(TRUE[i]),
        }
        for i in range(QUESTIONS)
    ]
    pope, chair, hallusion = POPE(), CHAIR(Lexicon.closed(words)), HallusionBench(records)
    generative, discriminative = AMBERGenerative({word: [] for word in words}, rounded=False), AMBERDiscriminative(rounded=False)
    mmhal = MMHal(lambda record, answer: f"Rating: {answer}")
    for batch in (rows[:7], rows[7:]):
        at = torch.tensor(list(batch))
        pope.update(SAID[at], TRUE[at])
        captions = [f"a {words[i % 4]} and a {words[i % 3]}" for i in batch]
        objects = [[words[i % 2], words[(i + 1) % 3]] for i in batch]
        chair.update(captions, objects)
        generative.update(captions, objects, [[words[i % 4]] for i in batch])
        hallusion.update(["yes" if SAID[i] or i % 5 else "no" for i in batch], at)
        types = ["relation" if i % 3 else "discriminative-hallucination" for i in batch]
        discriminative.update(["Yes" if SAID[i] else "No" for i in batch], ["yes" if TRUE[i] else "no" for i in batch], types)
        mmhal.update([str(i % 7) for i in batch], [{"question_type": QUESTION_TYPES[i % 8]} for i in batch])
    return [pope, chair, hallusion, generative, discriminative, mmhal]


def test_two_ranks_score_as_one():
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(share_of_rank, (folder,), nprocs=2, start_method="fork")
        ranks = [torch.load(Path(folder) / f"{rank}.pt") for rank in range(2)]
    whole = [metric.compute() for metric in scored(range(QUESTIONS))]
    half = [metric.compute() for metric in scored(range(0, QUESTIONS, 2))]
    for found in ranks:
        for expected, got in zip(whole, found, strict=True):
            assert same(expected, got)
    assert not any(same(part, all_rows) for part, all_rows in zip(half, whole, strict=True))


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name].nan_to_num(-1), other[name].nan_to_num(-1)) for name in one)
