"""When policies are judged, against the published procedure written out."""

import math

import pytest
import torch
from td7_agents import AloneTD7

from lightning_modules.r2r2.assessment import PolicyAssessment


class Published:
    """The checkpoint scheme as published, on returns alone."""

    def __init__(self, max_episodes: int):
        self.max_episodes = max_episodes
        self.episodes_since_update, self.max_before_update = 0, 1
        self.min_return, self.best_min_return = 1e8, -1e8

    def episode(self, value: float) -> str:
        self.episodes_since_update += 1
        self.min_return = min(self.min_return, value)
        verdict = "undecided"
        if self.min_return < self.best_min_return:
            verdict = "worse"
        elif self.episodes_since_update == self.max_before_update:
            self.best_min_return, verdict = self.min_return, "best"
        if verdict != "undecided":
            self.episodes_since_update, self.min_return = 0, 1e8
        return verdict

    def lengthen(self) -> None:
        self.best_min_return *= 0.9
        self.max_before_update = self.max_episodes


def test_policies_are_judged_as_published():
    assessment, published = PolicyAssessment(max_episodes=3), Published(max_episodes=3)
    returns = (torch.randn(400, generator=torch.Generator().manual_seed(0)) + torch.linspace(5, 8, 400)).tolist()
    verdicts = []
    for number, value in enumerate(returns):
        if number == 40:
            assessment.lengthen()
            published.lengthen()
        verdicts.append(assessment.judge(value))
        assert verdicts[-1] == published.episode(value), number
    assert set(verdicts[:40]) == {"worse", "best"}
    assert {verdict: verdicts[40:].count(verdict) > 5 for verdict in ("undecided", "worse", "best")} == {
        "undecided": True,
        "worse": True,
        "best": True,
    }


def test_by_hand():
    assessment = PolicyAssessment(max_episodes=2)
    assert [assessment.judge(value) for value in (3.0, 2.0, 3.0)] == ["best", "worse", "best"]
    assert assessment.record == 3
    assessment.lengthen()
    assert assessment.record == pytest.approx(2.7)
    assert [assessment.judge(value) for value in (2.8, 9.0, 2.0, 9.0, 2.0)] == ["undecided", "best", "worse", "undecided", "worse"]
    assert assessment.record == 2.8


def test_an_assessment_of_no_episode_is_refused():
    with pytest.raises(ValueError, match="at least one episode"):
        PolicyAssessment(max_episodes=0)


def alone(**options: float) -> AloneTD7:
    return AloneTD7(use_checkpoints=True, **options)


def test_updates_follow_an_episode_and_are_as_many_as_its_decisions_ask_for():
    module = alone(utd=2.5)
    due = []
    for step in range(1, 11):
        module.experience.ended = [(1.0, 5)] if step % 5 == 0 else []
        due.append(module.updates_due(1))
    assert due == [0, 0, 0, 0, 12, 0, 0, 0, 0, 13]


def test_updates_wait_for_the_last_episode_of_an_assessment():
    module = alone(max_eps_when_checkpointing=2)
    module.assessment.lengthen()
    module.experience.ended = [(1.0, 5)]
    assert module.updates_due(5) == 0
    assert module.updates_due(5) == 10
    module.experience.ended = [(0.5, 5)]  # below the record of 1
    assert module.updates_due(5) == 5


def test_an_episode_that_began_by_chance_is_not_judged():
    module = alone()
    module.experience.learning_starts, module.experience.env_steps = 97, 100
    module.experience.ended = [(1e9, 4)]
    assert module.updates_due(3) == 0
    assert module.assessment.record == -math.inf
    module.experience.ended, module.experience.env_steps = [(1.0, 4)], 104
    assert module.updates_due(4) == 7
    assert module.assessment.record == 1


def test_only_the_best_policy_is_kept():
    module = alone(lr=1e-2, target_update_rate=1)
    kept = []
    for value in (1.0, 0.0, 2.0):
        module.experience.ended = [(value, 1)]
        before = [p.clone() for p in module.actor.parameters()]
        module.learn(module.updates_due(4))
        kept.append(all(torch.equal(a, b) for a, b in zip(before, module.checkpoint_actor.parameters(), strict=True)))
    assert kept == [True, False, True]


def test_assessments_become_longer_after_a_number_of_decisions():
    module = alone(utd=2, steps_before_checkpointing=3)
    module.assessment.judge(10.0)
    module.learn(6)
    assert (module.assessment.episodes, module.assessment.record) == (1, 10)
    module.learn(1)
    assert (module.assessment.episodes, module.assessment.record) == (20, 9)
    module.learn(3)
    assert (module.assessment.episodes, module.assessment.record) == (20, 9)
