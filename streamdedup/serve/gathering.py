"""Gathers the questions of concurrent requests, so that one pass answers them together.

One pass runs at a time. Questions that arrive meanwhile wait and form the next pass. So under load a pass has as many
questions as arrived during the previous pass, and a question that arrives alone is answered at once. A request with
many questions asks them in groups, so a question of another request waits for at most one of them after the running
pass.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class _Group(NamedTuple, Generic[Q, A]):
    """Questions of one request, which are answered in one pass."""

    questions: Sequence[Q]
    weight: int
    answers: "asyncio.Future[Sequence[A | Exception]]"


class Gatherer(Generic[Q, A]):
    """Answers questions in passes.

    ``answer`` answers the questions of a pass, in order: an exception in place of an answer belongs to one question, a
    raised one to all. A pass has at most ``max_count`` questions of at most ``max_weight``, or a single heavy one.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Q]], Awaitable[Sequence[A | Exception]]],
        weigh: Callable[[Q], int],
        max_count: int,
        max_weight: int,
    ) -> None:
        self._answer = answer
        self._weigh = weigh
        self._max_count = max_count
        self._max_weight = max_weight
        self._waiting: deque[_Group[Q, A]] = deque()
        self._passes_task: asyncio.Task[None] | None = None

    async def ask(self, questions: Sequence[Q]) -> list[A | Exception]:
        """Return the answers to questions, in order; an exception in place of an answer belongs to that question."""
        answers: list[A | Exception] = []
        for group in self._groups(questions):
            self._waiting.append(group)
            if self._passes_task is None or self._passes_task.done():  # the task ends when no group waits
                self._passes_task = asyncio.create_task(self._run_passes())
            answers += await group.answers
        return answers

    def _groups(self, questions: Sequence[Q]) -> Iterator[_Group[Q, A]]:
        loop = asyncio.get_running_loop()
        begin, weight = 0, 0
        for number, question in enumerate(questions):
            question_weight = self._weigh(question)
            # A group has at least one question, however much it weighs.
            count = number - begin
            if count and (count == self._max_count or weight + question_weight > self._max_weight):
                yield _Group(questions[begin:number], weight, loop.create_future())
                begin, weight = number, 0
            weight += question_weight
        if begin < len(questions):
            yield _Group(questions[begin:], weight, loop.create_future())

    async def _run_passes(self) -> None:
        while self._waiting:
            if groups := self._take_groups():  # none if all waiting requests were cancelled
                await self._run_pass(groups)

    def _take_groups(self) -> list[_Group[Q, A]]:
        taken: list[_Group[Q, A]] = []
        count = weight = 0
        while self._waiting:
            group = self._waiting[0]
            # A request that was cancelled meanwhile needs no answer.
            if not group.answers.done():
                count, weight = count + len(group.questions), weight + group.weight
                if taken and (count > self._max_count or weight > self._max_weight):
                    break
                taken.append(group)
            self._waiting.popleft()
        return taken

    async def _run_pass(self, groups: Sequence[_Group[Q, A]]) -> None:
        questions = [question for group in groups for question in group.questions]
        answers: Sequence[A | Exception]
        try:
            answers = await self._answer(questions)
        except Exception as error:  # noqa: BLE001  each request reports it
            answers = [error] * len(questions)
        begin = 0
        for group in groups:
            end = begin + len(group.questions)
            # The request may have been cancelled during the pass.
            if not group.answers.done():
                group.answers.set_result(answers[begin:end])
            begin = end
