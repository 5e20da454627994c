"""Settings tried on a sample of texts: pairs found, pairs missed, candidates, memory. Used by ``streamdedup tune``.

``sample`` draws texts from a stream; ``study`` finds all pairs of the sample for one kind of shingles; ``candidates``
counts pairs and buckets; ``rows`` chooses a banding for each threshold and minimum recall; ``memory`` forecasts the
memory of an index from small indexes on a real server; ``boilerplate`` finds texts that many documents share;
``advice`` recommends and warns.
"""
