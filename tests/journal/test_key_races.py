"""One call to a key, whoever asks for it and when."""

import threading
from typing import Any, Final

from treefold import CodeFunction, MemoryStore, Runtime
from treefold.core.errors import InvalidValueError

PATIENCE: Final = 60  # seconds

echo = CodeFunction(name="echo", callable=lambda ctx, text: text)


def test_threads_that_ask_at_once_for_different_calls_with_one_key_are_told() -> None:
    heard: list[tuple[str, Any]] = []

    def ask(runtime: Runtime, text: str) -> None:
        try:
            heard.append((text, runtime.invoke(echo, {"text": text}, key="a").result(PATIENCE)))
        except InvalidValueError:
            heard.append((text, None))

    for _ in range(10):  # who is first is up to chance
        runtime = Runtime([echo], store=MemoryStore())
        threads = [threading.Thread(target=ask, args=(runtime, f"{n % 2}")) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        runtime.close()
    assert len(heard) == 200
    assert [answer for answer in heard if answer[1] not in {None, answer[0]}] == []
