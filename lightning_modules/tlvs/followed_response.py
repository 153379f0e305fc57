"""Following one response token by token beside the model that decodes it."""

from torch import Tensor


class FollowedResponse:
    """Tells the newest tokens of a response from all tokens so far."""

    def __init__(self) -> None:
        self._length: int | None = None

    def newest(self, tokens_BT: Tensor) -> Tensor | None:
        """Return the last tokens ``[B]`` of ``tokens_BT``; None at the first call, which sees the prompt alone.

        Raises:
            ValueError: if the tokens are not those of the last call and one more.
        """
        before, self._length = self._length, tokens_BT.shape[1]
        if before is None:
            return None
        if self._length != before + 1:
            raise ValueError("a second run follows one response token by token: use a new processor for each batch, and no beams")
        return tokens_BT[:, -1]
