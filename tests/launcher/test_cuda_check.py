import os

import pytest

from launcher.cuda_check import settle_cuda_check

NAME = "PYTORCH_NVML_BASED_CUDA_CHECK"


@pytest.mark.parametrize(("available", "left"), [(False, "0"), (True, "1")])
def test_the_library_is_not_asked_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch, available: bool, left: str):
    monkeypatch.setenv(NAME, "1")
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    settle_cuda_check()
    assert os.environ[NAME] == left
