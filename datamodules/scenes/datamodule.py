"""Scenes as data for models that see and speak."""

from typing import TYPE_CHECKING, Any, Literal, get_args
from zlib import crc32

import numpy as np
from torch import Tensor

from datamodules.base import BatchDataset, LeydenDataModule
from datamodules.scenes.batches import CaptionedScenes, FixedQuestions, FreshQuestions, JointBatches, RandomImages, draw_questions
from datamodules.scenes.pope import Negatives, pope_questions
from datamodules.scenes.vocabulary import CATEGORIES, COLOURS, COMPANIONS, OBJECTS, WORDS
from datamodules.scenes.world import LayoutName, Scenes, SceneWorld

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Task = Literal["caption", "vqa", "pope", "unified"]
POPE: tuple[Negatives, ...] = ("random", "popular", "adversarial")


class SceneDataModule(LeydenDataModule):
    """Small scenes with a strong habit: companions of an anchor are nearly always there, and hard to see.

    A model that trusts the habit more than its eyes names objects that are not there. The *balanced* images, on which the habit
    tells little, show it.

    ======= ============================================ ============================= ==========================================
    task    a training batch                             test                          suites
    ======= ============================================ ============================= ==========================================
    caption images and captions                          captions                      ``balanced``
    vqa     images and yes/no questions, new each epoch  one question an image         ``balanced``
    pope    as vqa                                       POPE on balanced images with  ``popular``, ``adversarial``
                                                         random negatives
    unified ``caption``, ``question`` and ``unbiased``:  captions                      ``balanced``, ``pope_random``,
            batches of equal size, the last of images                                  ``pope_popular``, ``pope_adversarial``
            in which objects do not depend on each other
    ======= ============================================ ============================= ==========================================

    :mod:`datamodules.scenes.batches` says what a batch holds. Validation has the form of training (``unified``: without
    ``unbiased``), with one fixed question an image. Scenes depend on ``generator_seed``, the name of their split and their number;
    nothing is read from or kept on disk.

    Args:
        task: see above.
        layout: ``grid4`` or ``quad``, see :class:`~datamodules.scenes.world.SceneWorld`; ``quad`` has no suites.
        p_comp: probability of a companion that an anchor prefers, in training, validation and test.
        p_balanced: the same on balanced images.
        p_unbiased: probability of each object on unbiased images.
        n_train: training scenes.
        n_val: validation scenes.
        n_test: scenes of the test and of each suite; POPE asks about those that can be asked about.
        n_unbiased: unbiased scenes.
        null_image_prob: share of the training samples of a batch whose image is withheld.
        batch_size: global batch size.
        eval_batch_size: global batch size of validation, test and prediction; default ``batch_size``.
        num_workers: loader processes per rank.
        seed: seed of the data order, of training questions and of withheld images.
        generator_seed: seed of the scenes and of fixed questions, apart from ``seed`` so that runs of several seeds share their
            data. Scenes of two values of ``p_comp`` and one seed are alike but for some companions: take another seed where they
            must be independent.

    Raises:
        ValueError: if a number makes no sense, or ``quad`` is asked for POPE.
    """

    smoke = {
        "n_train": 32,
        "n_val": 8,
        "n_test": 24,
        "n_unbiased": 16,
        "batch_size": 8,
        "eval_batch_size": 8,
        "num_workers": 0,
    }

    def __init__(
        self,
        task: Task = "caption",
        layout: LayoutName = "grid4",
        p_comp: float = 0.9,
        p_balanced: float = 0.5,
        p_unbiased: float = 0.35,
        n_train: int = 10_000,
        n_val: int = 500,
        n_test: int = 1_000,
        n_unbiased: int = 6_000,
        null_image_prob: float = 0.15,
        batch_size: int = 64,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        generator_seed: int = 0,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, num_workers, seed)
        if task not in get_args(Task):
            raise ValueError(f"task={task!r} is unknown, use one of {', '.join(get_args(Task))}")
        if layout == "quad" and task in ("pope", "unified"):
            raise ValueError(
                f"task={task!r} asks POPE's questions, for which scenes of layout='quad' have too few objects: use grid4"
            )
        for name, number in {"n_train": n_train, "n_val": n_val, "n_test": n_test, "n_unbiased": n_unbiased}.items():
            if number < 1:
                raise ValueError(f"{name}={number} must be at least 1")
        if not 0 <= null_image_prob < 1:
            raise ValueError(f"null_image_prob={null_image_prob} must be at least 0 and less than 1")
        self.task, self.layout = task, layout
        self.sizes = {"train": n_train, "val": n_val, "test": n_test, "balanced": n_test, "unbiased": n_unbiased}
        self.worlds = {split: SceneWorld(layout, p_comp) for split in ("train", "val", "test")}
        self.worlds["balanced"] = SceneWorld(layout, p_balanced)
        self.worlds["unbiased"] = SceneWorld("grid4", p_any=p_unbiased)
        self.null_image_prob, self.generator_seed = null_image_prob, generator_seed
        quad = [number for number, name in enumerate(OBJECTS) if name not in COMPANIONS]
        self.askable = np.arange(len(CATEGORIES)) if layout == "grid4" else np.array(quad)

    def suite_names(self) -> list[str]:
        """Names of the further test sets, in the order of their loaders."""
        if self.layout == "quad":
            return []
        suites: dict[str, list[str]] = {"pope": [*POPE[1:]], "unified": ["balanced", *(f"pope_{kind}" for kind in POPE)]}
        return suites.get(self.task, ["balanced"])

    def model_arguments(self) -> dict[str, Any]:
        """Suites, and the words in the order of their ids, those of objects and of colours in the order of their numbers."""
        return super().model_arguments() | {
            "words": list(WORDS),
            "object_words": list(CATEGORIES if self.layout == "grid4" else OBJECTS),
            "colour_words": list(COLOURS),
        }

    def setup(self, stage: str) -> None:
        """Draw the scenes that the stage needs."""
        if stage == "fit":
            self.train_set = self._training(self._scenes("train"))
        if stage in ("fit", "validate"):
            self.val_set = self._evaluation(self._scenes("val"), "val")
        if stage in ("test", "predict"):
            self._set_up_test()

    def plot(self, sample: dict[str, Tensor]) -> "Figure":
        """Draw scenes with their captions.

        Args:
            sample: ``pixels``, ``objects`` and ``colours`` of a batch and, if known, ``generated``, ids of captions ``[B, T]``.
        """
        from datamodules.scenes.figure import draw_scenes

        arrays = {name: value.cpu().numpy() for name, value in sample.items()}
        return draw_scenes(arrays["pixels"], arrays["objects"], arrays["colours"], arrays.get("generated"))

    def _scenes(self, split: str) -> Scenes:
        return self.worlds[split].scenes(self.sizes[split], split, self.generator_seed)

    def _training(self, scenes: Scenes) -> BatchDataset:
        if self.task == "caption":
            return CaptionedScenes(scenes, self.null_image_prob, self.seed)
        questions = FreshQuestions(scenes, self.askable, self.null_image_prob, self.seed)
        if self.task != "unified":
            return questions
        parts: dict[str, BatchDataset] = {
            "caption": CaptionedScenes(scenes, self.null_image_prob, self.seed),
            "question": questions,
            "unbiased": RandomImages(self._scenes("unbiased"), self.seed),
        }
        return JointBatches(parts)  # type: ignore[return-value]  # batches in a batch

    def _evaluation(self, scenes: Scenes, split: str) -> BatchDataset:
        if self.task == "caption":
            return CaptionedScenes(scenes)
        random = np.random.default_rng((self.generator_seed, crc32(f"questions of {split}".encode())))
        asked, answers = draw_questions(scenes.present[:, self.askable], random)
        questions = FixedQuestions(scenes, np.arange(len(scenes)), self.askable[asked], answers)
        if self.task != "unified":
            return questions
        return JointBatches({"caption": CaptionedScenes(scenes), "question": questions})  # type: ignore[return-value]  # as above

    def _set_up_test(self) -> None:
        judged = {f"{prefix}{kind}": kind for kind in POPE for prefix in ("", "pope_")}
        if self.task == "pope":
            self.test_set = self._pope(self._scenes("balanced"), "random")
        else:
            self.test_set = self._judged(self._scenes("test"), "test")
        self.test_suites = {}
        if names := self.suite_names():
            balanced = self._scenes("balanced")
            self.test_suites = {
                name: self._pope(balanced, judged[name]) if name in judged else self._judged(balanced, name) for name in names
            }

    def _judged(self, scenes: Scenes, split: str) -> BatchDataset:
        return CaptionedScenes(scenes) if self.task == "unified" else self._evaluation(scenes, split)

    def _pope(self, scenes: Scenes, negatives: Negatives) -> FixedQuestions:
        return FixedQuestions(scenes, *pope_questions(scenes.present, negatives, self.generator_seed))
