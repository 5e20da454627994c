"""The HTTP service: read-only look-ups in the indexes that daemons maintain.

Litestar is the framework because it validates and encodes with msgspec, which the wire formats use already, and
generates the OpenAPI document from the same types; FastAPI would add a second model of every body in pydantic. uvicorn
is the server: both are pure Python with optional accelerators, and install wherever streamdedup does.

``access`` is an ASGI layer around the framework: tokens, limits, deadlines, security headers, metrics. ``requests``
decodes bodies, ``app`` has the routes, ``engine`` the one thread that talks to the index, and ``gathering`` brings
concurrent requests together. Nothing here writes to an index, and no text reaches a log.
"""
