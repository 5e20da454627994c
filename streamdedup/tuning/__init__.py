"""Settings tried on a sample of texts: pairs found and missed, candidates, memory. For ``tune`` and ``stop-shingles``.

``sample`` draws texts from a stream. ``study`` finds all pairs for one shingle kind: ``distinct`` counts pairs,
``buckets`` candidates, ``storm_limits`` those that are compared. ``rows`` chooses a banding for each threshold and
minimum recall, ``recall`` measures it, and ``memory`` forecasts the index memory. ``comparison`` studies all kinds,
``advice`` recommends a row and warns. ``proposals`` chooses other settings, ``meter`` counts the pairs that they
change. ``shown_pairs`` shows pairs, ``passages`` stop shingles, as text. ``results`` gathers everything for the user.
"""
