"""Settings tried on a sample of texts: pairs found and missed, candidates, memory. For ``tune`` and ``stop-shingles``.

``comparison`` is the work as a whole. ``sample`` draws texts from a stream; ``study`` finds all sample pairs for
one shingle kind; ``candidates`` counts pairs and candidates, ``capped`` those that are compared; ``rows`` chooses a
banding for each threshold and minimum recall; ``memory`` forecasts the index memory; ``advice`` recommends and
warns; ``proposals`` and ``pair_change`` count the pairs that other settings would change; ``results`` and ``section``
are what the user gets. ``boilerplate`` finds text that many documents share, for ``stop-shingles``.
"""
