"""The peer of `benchmarks.serve`: look-ups over HTTP with datasketch, its index in Redis, FastAPI and uvicorn.

Written as the documentation of the three suggests: handlers without `async`, which FastAPI runs in a pool of threads,
because the index blocks; signatures made in bulk; uvicorn with uvloop and httptools, one process. It answers with the
ids of candidates and verifies nothing, because the index keeps no signatures.
"""

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks import peers
from streamdedup.similarity.lsh import Banding


class Lookup(BaseModel):
    text: str


class Batch(BaseModel):
    texts: list[Lookup]


class Answer(BaseModel):
    """Ids of the candidates of one text."""

    ids: list[str]


class BatchAnswer(BaseModel):
    results: list[Answer]


def create_app(redis_url: str, banding: Banding) -> FastAPI:
    index = peers.redis_index(redis_url, banding)
    app = FastAPI()

    def answers(texts: list[str]) -> list[Answer]:
        return [Answer(ids=index.query(signature)) for signature in peers.sign(texts)]

    @app.get("/livez")
    def livez() -> str:
        return "ok"

    @app.post("/lookup")
    def look_up(lookup: Lookup) -> Answer:
        return answers([lookup.text])[0]

    @app.post("/lookup:batch")
    def look_up_batch(batch: Batch) -> BatchAnswer:
        return BatchAnswer(results=answers([lookup.text for lookup in batch.texts]))

    return app


def serve(redis_url: str, port: str, bands: int, rows: int) -> None:
    """Serve until a signal asks to stop."""
    app = create_app(redis_url, Banding(bands, rows))
    uvicorn.run(app, port=int(port), loop="uvloop", http="httptools", access_log=False, log_level="warning", workers=1)
