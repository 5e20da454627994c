"""Gathers concurrent questions, so that one pass answers them together.

One pass runs at a time. Questions that arrive meanwhile wait and form the next pass; a question that arrives while no
pass runs waits for ``delay_s`` for others. So a lone request takes a few milliseconds longer, and under load a pass has
as many questions as arrive during the pass before.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class Gatherer(Generic[Q, A]):
    """Answers questions in passes. Used by one event loop.

    Args:
        answer: Answers the questions of a pass, in order; an exception in place of an answer belongs to one question, a
            raised one to all.
        delay_s: Time for which the first question waits for others, in seconds.
        max_count: Most questions of a pass.
    """

    def __init__(
        self, answer: Callable[[Sequence[Q]], Awaitable[Sequence[A | Exception]]], delay_s: float, max_count: int
    ) -> None:
        self._answer = answer
        self._delay_s = delay_s
        self._max_count = max_count
        self._waiting: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self._passes: asyncio.Task[None] | None = None

    async def ask(self, question: Q) -> A:
        """Return the answer to a question.

        Raises:
            Exception: What the pass raised for this question.
        """
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._passes is None or self._passes.done():
            self._passes = asyncio.create_task(self._run_passes())
        return await future

    async def _run_passes(self) -> None:
        if len(self._waiting) < self._max_count:
            await asyncio.sleep(self._delay_s)
        while self._waiting:
            await self._run_pass()

    async def _run_pass(self) -> None:
        taken: list[tuple[Q, asyncio.Future[A]]] = []
        while self._waiting and len(taken) < self._max_count:
            question, future = self._waiting.popleft()
            # A request that was cancelled meanwhile needs no answer.
            if not future.done():
                taken.append((question, future))
        if not taken:
            return
        answers: Sequence[A | Exception]
        try:
            answers = await self._answer([question for question, _ in taken])
        except Exception as error:  # noqa: BLE001  each request reports it
            answers = [error] * len(taken)
        for (_, future), answer in zip(taken, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
