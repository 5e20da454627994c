"""Settings tried on a sample of texts: pairs found and missed, candidates, memory. For ``tune`` and ``stop-shingles``.

``rounds`` is the work as a whole, ``comparison`` one round of it. ``sample`` draws texts from a stream; ``study`` finds
all sample pairs for one shingle kind; ``candidates`` counts pairs and candidates, ``capped`` those that are compared;
``rows`` chooses a banding for each threshold and minimum recall; ``memory`` forecasts the index memory; ``advice``
recommends and warns; ``proposals`` counts the pairs that other settings would change; ``results`` is what the user
gets. ``passages`` shows stop shingles as text, for ``stop-shingles``.
"""
