"""The HTTP service: read-only look-ups in the indexes that daemons maintain, and the stream of alerts.

Litestar is the framework because it validates and encodes with msgspec, which the wire formats use already. Nothing
here writes to an index, and no text reaches a log.
"""
