import math

import numpy as np
import pytest

from datamodules import BigramOracleDataModule, MarkovBlocksDataModule
from datamodules.base import BatchKey
from datamodules.tokens.chain_data import LETTERS
from datamodules.tokens.chains import Chain, stationary


def key(indices: list[int], epoch: int = 0, rows: slice = slice(None)) -> BatchKey:
    return BatchKey(epoch, 0, np.array(indices), rows)


def test_blocks_have_the_published_law():
    chain = MarkovBlocksDataModule().chain
    assert chain.entropy == pytest.approx(6.0279478375, abs=1e-9)
    second = chain.initial_S @ chain.transition_SS
    expected = [0.0975, 0.115833333, 0.134166667, 0.1525]
    assert second == pytest.approx([*expected, *expected[::-1]], abs=1e-9)
    # after 3 (id 2): 1 to 5 with .9 / 5, 6 to 8 with .1 / 3; after 2: all alike
    assert chain.transition_SS[2] == pytest.approx([0.18] * 5 + [0.1 / 3] * 3)
    assert chain.transition_SS[1] == pytest.approx([1 / 8] * 8)
    assert MarkovBlocksDataModule(blocks=4).chain.entropy == pytest.approx(4 * chain.entropy)


def test_samples_follow_the_chain():
    chain = MarkovBlocksDataModule(blocks=2).chain
    tokens = chain.sample(200_000, np.random.default_rng(0))
    assert tokens.shape == (200_000, 6)
    law = chain.initial_S[:, None, None] * chain.transition_SS[:, :, None] * chain.transition_SS[None]
    for block in (tokens[:, :3], tokens[:, 3:]):
        found = np.bincount(block @ [64, 8, 1], minlength=512) / len(block)
        # of the law itself a histogram differs by sum sqrt(p (1 - p) / (2 pi n)) on average
        noise = np.sqrt(law.ravel() * (1 - law.ravel()) / (2 * math.pi * len(block))).sum()
        assert abs(found - law.ravel()).sum() / 2 < 1.15 * noise
    both = np.zeros((8, 8))
    np.add.at(both, (tokens[:, 2], tokens[:, 3]), 1 / len(tokens))
    third = chain.initial_S @ chain.transition_SS @ chain.transition_SS
    assert abs(both - third[:, None] / 8).sum() / 2 < 0.015, "blocks are independent"


def test_letters_have_the_published_entropy():
    data = BigramOracleDataModule()
    chain = data.chain
    assert chain.entropy / 32 == pytest.approx(2.3212, abs=5e-5)
    assert chain.initial_S @ chain.transition_SS == pytest.approx(chain.initial_S, abs=1e-12)
    assert data.model_arguments() == {"vocab_size": 27, "length": 32}
    assert LETTERS[chain.transition_SS[LETTERS.index("q")].argmax()] == "u"
    assert data.decode(np.array([19, 7, 4, 26])) == "the "
    tokens = chain.sample(4_000, np.random.default_rng(1))
    likelihood = np.log(chain.initial_S)[tokens[:, 0]] + np.log(chain.transition_SS)[tokens[:, :-1], tokens[:, 1:]].sum(axis=1)
    assert -likelihood.mean() / 32 == pytest.approx(chain.entropy / 32, abs=0.01)


def test_stationary_law_by_hand():
    # 0 leaves with .1, 1 with .3: three quarters of the time in 0
    assert stationary(np.array([[0.9, 0.1], [0.3, 0.7]])) == pytest.approx([0.75, 0.25])


def test_batches_are_fresh_and_shared_out():
    data = MarkovBlocksDataModule(train_size=64, batch_size=8, val_size=6, test_size=5)
    data.setup("fit")
    whole = data.train_set[key([0, 1, 2, 3, 4, 5, 6, 7])]
    assert whole["tokens"].shape == (8, 3)
    assert len(whole["seed"].unique()) == 8
    odd = data.train_set[key([0, 1, 2, 3, 4, 5, 6, 7], rows=slice(1, None, 2))]
    assert all((odd[name] == whole[name][1::2]).all() for name in whole)
    later = data.train_set[key([0, 1, 2, 3, 4, 5, 6, 7], epoch=1)]
    assert not (later["tokens"] == whole["tokens"]).all()
    assert data.val_set[key([4, 2], epoch=3)]["seed"].tolist() == [4, 2]
    other = MarkovBlocksDataModule(val_size=6, test_size=5, seed=9)
    other.setup("fit")
    assert (other.val_set.tokens_nD == data.val_set.tokens_nD).all()
    assert len(data.test_set) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transition_SS": np.ones((2, 2))}, "transition_SS .* sum to 1"),
        ({"transition_SS": np.full((3, 3), 1 / 3)}, "transition matrix 2 x 2"),
        ({"blocks": 0}, "blocks=0"),
        ({"initial_S": np.array([1.5, -0.5])}, "initial_S"),
    ],
)
def test_wrong_chains_are_refused(change: dict[str, object], message: str):
    right = {"initial_S": np.full(2, 0.5), "transition_SS": np.full((2, 2), 0.5), "block_length": 3}
    with pytest.raises(ValueError, match=message):
        Chain(**{**right, **change})  # type: ignore[arg-type]


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="blocks=0 must be positive"):
        MarkovBlocksDataModule(blocks=0)
    with pytest.raises(ValueError, match="length=0 must be positive"):
        BigramOracleDataModule(length=0)
    with pytest.raises(ValueError, match="test_size=0 must be positive"):
        MarkovBlocksDataModule(test_size=0)
