"""The HTTP service: read-only look-ups in the indexes that daemons maintain, and streams of alerts and dead letters.

Litestar is the framework because it validates and encodes with msgspec, which the wire formats use already, and
generates the OpenAPI document from the same types; FastAPI would add a second model of every body in pydantic.

``cli.serve`` builds and runs the service. ``server`` has the connections, and ``access`` is an ASGI layer around the
framework: limits and deadlines, with ``admission`` (tokens, hosts) and ``exchange`` (body and response). ``app`` has
the routes; ``requests`` decodes bodies, ``bodies`` makes responses. ``index_thread`` is the one thread that talks to
the index, ``gathering`` brings concurrent requests together, ``texts`` reads texts from Kafka, and ``feed`` distributes
the events of streams. Nothing here writes to an index, and no text reaches a log.
"""
