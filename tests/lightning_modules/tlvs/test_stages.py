import math

import pytest

from lightning_modules.tlvs.stages import Stages


def test_stage_boundaries():
    stages = Stages([3, 2, 4, 8])
    assert stages.total == 17
    assert [stages.turn(step).stage for step in range(19)] == [0] * 3 + [1] * 2 + [2] * 4 + [3] * 10
    assert [stages.turn(step).blind for step in range(9)] == [False] * 3 + [True] * 2 + [False] * 4


def test_lessons():
    stages = Stages([1, 4, 4, 8])
    lessons = [stages.turn(step).lesson for step in range(17)]
    assert lessons[0] == "objects"
    assert lessons[1:5] == lessons[5:9] == ["caption", "question"] * 2
    assert lessons[9:] == ["caption", "question", "question", "question"] * 2


def test_each_stage_has_a_cosine():
    stages = Stages([4, 0, 2, 10])
    shares = [stages.share(step) for step in range(17)]
    assert shares[:4] == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2])
    assert shares[4:6] == pytest.approx([1, 0.5])
    assert shares[6] == 1
    assert shares[11] == pytest.approx(0.5)
    assert shares[16] == 0, "what comes after the last stage changes nothing"


@pytest.mark.parametrize("steps", [[1, 2, 3], [0, 0, 0, 0], [1, -1, 2, 3]])
def test_refusals(steps: list[int]):
    with pytest.raises(ValueError, match="four stages"):
        Stages(steps)
