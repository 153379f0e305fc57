"""What libraries say is said again in the words of the command line."""

import pytest

from launcher.errors import _parameters, raised_message

SAID = {
    "No supported gpu backend found!": "leave out the overlay that asks for one, or add --trainer.accelerator=cpu",
    "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/mine'. Use": "there is no folder /models/mine",
    "size=-1 is negative:\n  use a positive number": "size=-1 is negative: use a positive number",
}


@pytest.mark.parametrize("said", SAID)
def test_a_library_is_reworded_and_our_own_message_kept(said: str):
    assert raised_message(ValueError(said)).endswith(SAID[said])


def test_parameters_that_a_class_passes_on_count_as_its_own():
    assert {"spec", "return_value"} <= set(_parameters("unittest.mock.MagicMock"))
    assert _parameters("string.Template") == ["template"]
