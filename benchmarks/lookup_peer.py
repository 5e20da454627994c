"""The peer of `benchmarks.serve`: look-ups over HTTP with datasketch, its index in Redis, FastAPI and uvicorn.

    python -m benchmarks.lookup_peer --redis URL --port 8081 --bands 9 --rows 4

Written as the documentation of the three suggests: handlers without `async`, which FastAPI runs in a pool of threads,
because the index blocks; signatures made in bulk; uvicorn with uvloop and httptools, one process. It answers with the
ids of candidates and verifies nothing, because the index keeps no signatures.
"""

import argparse

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks import peers
from streamdedup.similarity.lsh import Banding


class Lookup(BaseModel):
    """A text to look up."""

    text: str


class Batch(BaseModel):
    """Texts to look up."""

    texts: list[Lookup]


class Answer(BaseModel):
    """Ids of the candidates of one text."""

    ids: list[str]


class BatchAnswer(BaseModel):
    """Answers in the order of the texts."""

    results: list[Answer]


def create_app(redis_url: str, banding: Banding) -> FastAPI:
    """Return the application over an index."""
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


def main() -> None:
    """Serve until a signal asks to stop."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--redis", required=True)
    for name in ("port", "bands", "rows"):
        parser.add_argument(f"--{name}", type=int, required=True)
    arguments = parser.parse_args()
    app = create_app(arguments.redis, Banding(arguments.bands, arguments.rows))
    uvicorn.run(
        app, port=arguments.port, loop="uvloop", http="httptools", access_log=False, log_level="warning", workers=1
    )


if __name__ == "__main__":
    main()
