"""From text to numbers and back: characters, or byte pairs learned from the training text."""

import hashlib
import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from datamodules.roots import writable_folder, written_whole

if TYPE_CHECKING:
    import tokenizers

logger = logging.getLogger(__name__)

UNKNOWN = "\ufffd"
BYTES = 256
RECIPE_VERSION = 1


class TextTokenizer(Protocol):
    """What a text is encoded with.

    Attributes:
        vocab_size: number of tokens V; all ids lie below it.
    """

    vocab_size: int

    def encode(self, text: str) -> np.ndarray:
        """Return the ids, int32 ``[T]``."""

    def decode(self, ids: np.ndarray) -> str:
        """Return the text of ids."""


class CharacterTokenizer:
    """One token a character: id 0 for what the training text does not hold, the others in the order of their code points.

    Args:
        text: training text.
        vocab_size: tokens at most; the rarest characters beyond are unknown. None keeps all.

    Raises:
        ValueError: if ``vocab_size`` leaves no character.
    """

    def __init__(self, text: str, vocab_size: int | None = None) -> None:
        if vocab_size is not None and vocab_size < 2:
            raise ValueError(f"vocab_size={vocab_size} leaves no character beside the unknown one: use at least 2, or None for all")
        counts = Counter(text)
        kept = sorted(sorted(counts, key=lambda character: (-counts[character], character))[: vocab_size and vocab_size - 1])
        self.characters = [UNKNOWN, *kept]
        self.vocab_size = len(self.characters)
        self._id_of_code = np.zeros(max(map(ord, kept), default=0) + 2, dtype=np.int32)
        self._id_of_code[[ord(character) for character in kept]] = np.arange(1, self.vocab_size)

    def encode(self, text: str) -> np.ndarray:
        """Return one id a character, int32 ``[T]``."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        return self._id_of_code[np.minimum(codes, len(self._id_of_code) - 1)]

    def decode(self, ids: np.ndarray) -> str:
        """Return the characters; those that were unknown are lost."""
        return "".join(self.characters[i] for i in np.asarray(ids).tolist())


class BytePairTokenizer:
    """Byte-level byte-pair encoding: every text can be encoded and comes back unchanged.

    Args:
        tokenizer: a tokenizer of the package ``tokenizers``.
        vocab_size: number of tokens that models reserve; a short text has fewer pairs worth a token.
    """

    def __init__(self, tokenizer: "tokenizers.Tokenizer", vocab_size: int) -> None:
        self.tokenizer, self.vocab_size = tokenizer, vocab_size

    def encode(self, text: str) -> np.ndarray:
        """Return the ids, int32 ``[T]``."""
        return np.array(self.tokenizer.encode_batch_fast([text])[0].ids, dtype=np.int32)

    def decode(self, ids: np.ndarray) -> str:
        """Return the text; what begins or ends within a character has a replacement character there."""
        return self.tokenizer.decode(np.asarray(ids).tolist(), skip_special_tokens=False)


def byte_pair_tokenizer(text: str, vocab_size: int, root: str | Path | None = None) -> BytePairTokenizer:
    """Learn byte pairs from the training text, once: they are kept as ``text/bpe_<vocab_size>_<key>.json``.

    The key depends on the text, the size, the version of ``tokenizers`` and of this recipe: 256 bytes first, words as in GPT-2.

    Args:
        text: training text.
        vocab_size: number of tokens, with the 256 bytes.
        root: folder that keeps the file; by default the cache folder.

    Raises:
        ImportError: without the package ``tokenizers``.
        ValueError: if ``vocab_size`` is below 256.
    """
    if vocab_size < BYTES:
        raise ValueError(
            f"vocab_size={vocab_size} is below the {BYTES} bytes that byte-level BPE begins with: use more, or tokenizer='char'"
        )
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError("tokenizer='bpe' needs tokenizers: pip install 'leyden[llm]'") from error
    facts = f"{RECIPE_VERSION} {tokenizers.__version__} {vocab_size}\n"
    key = hashlib.sha256((facts + text).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    file = writable_folder(root) / "text" / f"bpe_{vocab_size}_{key}.json"
    if file.exists():
        try:
            return BytePairTokenizer(tokenizers.Tokenizer.from_file(str(file)), vocab_size)
        except Exception:  # tokenizers raises plain Exception
            logger.warning("%s is damaged and is made anew", file)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([text], trainer)
    with written_whole(file) as temporary:
        tokenizer.save(str(temporary))
    return BytePairTokenizer(tokenizer, vocab_size)
