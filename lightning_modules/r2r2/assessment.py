"""When TD7 keeps a policy: after episodes whose worst return is the best so far."""

import math
from typing import Any, Literal

Verdict = Literal["undecided", "worse", "best"]


class PolicyAssessment:
    """Judge a policy, which stays as it is meanwhile, by the worst return of several episodes.

    One bad episode is enough to give a policy up; to be the best it takes ``episodes`` of them, all above the record. A policy is
    assessed for one episode at first and, from a time on that the caller chooses, for ``max_episodes``.

    Args:
        max_episodes: episodes of an assessment later in training.
        reset_weight: factor of the record when assessments become longer, and thereby harder.

    Attributes:
        episodes: episodes of an assessment now.
        record: worst return of the best policy so far.

    Source: Fujimoto et al. 2023 (arXiv 2306.02451), section 4.2, and the published code.
    """

    def __init__(self, max_episodes: int = 20, reset_weight: float = 0.9) -> None:
        if max_episodes < 1:
            raise ValueError(f"a policy is assessed for at least one episode, got max_eps_when_checkpointing={max_episodes}")
        self.max_episodes, self.reset_weight = max_episodes, reset_weight
        self.episodes = 1
        self.record = -math.inf
        self._seen = 0
        self._worst = math.inf

    def judge(self, episode_return: float) -> Verdict:
        """Take in the return of an episode; after ``worse`` and ``best`` another policy is assessed."""
        self._seen += 1
        self._worst = min(self._worst, episode_return)
        if self._worst >= self.record and self._seen < self.episodes:
            return "undecided"
        verdict: Verdict = "worse"
        if self._worst >= self.record:
            self.record, verdict = self._worst, "best"
        self._seen, self._worst = 0, math.inf
        return verdict

    def lengthen(self) -> None:
        """Assess for ``max_episodes`` from now on."""
        self.episodes = self.max_episodes
        self.record *= self.reset_weight

    def state_dict(self) -> dict[str, Any]:
        return {"episodes": self.episodes, "record": self.record, "seen": self._seen, "worst": self._worst}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.episodes, self.record = state_dict["episodes"], state_dict["record"]
        self._seen, self._worst = state_dict["seen"], state_dict["worst"]
