"""Send several requests at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from otm.audit.streams.server.answers import Completion


def ask_in_threads(
    asks: Sequence[Callable[[], Completion]],
) -> tuple[list[Completion], BaseException | None]:
    """Send all requests at once; return the answers before the first error, and the error.

    After Ctrl-C Python waits for the threads of a pool, but not for daemon threads.
    """
    if len(asks) == 1:
        return [asks[0]()], None
    found: list[Completion | BaseException | None] = [None] * len(asks)

    def one(place: int) -> None:
        try:
            found[place] = asks[place]()
        except BaseException as error:
            found[place] = error

    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(len(asks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers: list[Completion] = []
    for result in found:
        if not isinstance(result, Completion):
            return answers, result
        answers.append(result)
    return answers, None
