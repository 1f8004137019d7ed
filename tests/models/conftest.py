"""Settings for tests of language models."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Threads wait for each other longer than models of this size compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
