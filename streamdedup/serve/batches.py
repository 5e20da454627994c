"""Look-ups of many texts in one request.

Three limits bound the memory of the answers: the sum of the fields ``limit`` of all texts in a request is at most
``MAX_BATCH_MATCHES``; texts are looked up in groups, and the matches beyond the ``limit`` of a text are dropped before
the next group; at most ``BATCHES`` requests are looked up at the same time, further ones wait.
"""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from streamdedup.detection.lookup import LookupResult
from streamdedup.serve.bodies import lookup_body
from streamdedup.serve.index_thread import PASS_TEXTS, IndexThread, ServedProfile
from streamdedup.serve.problems import Problem, RequestProblem, request_problem_of
from streamdedup.serve.requests import decode_batch, query_of
from streamdedup.serve.schemas import MAX_BATCH_MATCHES, LookupBatchResult, LookupRequest

#: Batches that are looked up at the same time: a bound for memory, because the answer to one may have
#: ``MAX_BATCH_MATCHES`` matches. Two already keep the index thread busy.
BATCHES: Final = 4


class BatchLookup:
    def __init__(self, index_thread: IndexThread) -> None:
        self._index_thread = index_thread
        self._free_batches = asyncio.Semaphore(BATCHES)

    async def look_up(self, served: ServedProfile, body: bytes) -> list[LookupBatchResult]:
        """Return a result for each text in the body of a request: its answer, or the problem with it."""
        requests = decode_batch(body, served.max_text_bytes)
        _check_limits(requests)
        results: list[LookupBatchResult] = []
        async with self._free_batches:
            for begin in range(0, len(requests), PASS_TEXTS):
                results += await self._look_up_group(served, requests[begin : begin + PASS_TEXTS])
        return results

    async def _look_up_group(
        self, served: ServedProfile, requests: Sequence[LookupRequest | Problem]
    ) -> list[LookupBatchResult]:
        queries = [query_of(request) for request in requests if isinstance(request, LookupRequest)]
        answers = iter(await self._index_thread.look_up_all(served, queries))
        results: list[LookupBatchResult] = []
        for request in requests:
            if isinstance(request, Problem):  # was not looked up, and has no answer
                results.append(LookupBatchResult(problem=request))
            else:
                results.append(_result(request, next(answers)))
        return results


def _check_limits(requests: Sequence[LookupRequest | Problem]) -> None:
    # A `limit` has no fraction, but is a float (`LookupRequest`).
    limits_sum = sum(int(request.limit) for request in requests if isinstance(request, LookupRequest))
    if limits_sum > MAX_BATCH_MATCHES:
        limit = f"a batch returns at most {MAX_BATCH_MATCHES:,} matches"
        detail = f"the limits of all texts are {limits_sum:,} together; {limit}"
        raise RequestProblem("invalid-field", detail, field="limit")


def _result(request: LookupRequest, answer: LookupResult | Exception) -> LookupBatchResult:
    if isinstance(answer, LookupResult):
        return LookupBatchResult(answer=lookup_body(answer, int(request.limit)))
    problem = request_problem_of(answer).body
    # An error of the index (5xx) fails the whole batch. A `RequestProblem` with such a status is a defect that this
    # text alone triggers (`IndexThread.look_up_all`).
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(answer, RequestProblem):
        raise answer
    return LookupBatchResult(problem=problem)
