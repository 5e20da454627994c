"""Settings tried on a sample of texts: pairs found and missed, candidates, memory. For ``tune`` and ``stop-shingles``.

``comparison`` compares the settings. ``sample`` draws texts from a stream; ``study`` finds all pairs for one shingle
kind; ``candidates`` counts pairs and candidates, ``capped`` those that are compared; ``rows`` chooses a banding for
each threshold and minimum recall; ``memory`` forecasts the index memory; ``advice`` recommends and warns;
``proposals`` chooses other settings to measure, ``meter`` counts the pairs that they change; ``shown_pairs`` shows
pairs, ``passages`` stop shingles as text; ``results`` gathers everything for the user. ``cli.tune`` calls
``comparison`` and ``results``, ``cli.stop_shingles`` calls ``passages`` and ``sample``.
"""
