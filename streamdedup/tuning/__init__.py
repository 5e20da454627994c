"""Settings tried on a sample of texts: what they find, miss and cost. Used by ``streamdedup tune`` only.

``sample`` takes texts from a stream; ``study`` knows all pairs of the sample for one kind of shingles (``distinct``:
copies; ``meetings``: candidates); ``rows`` chooses bands for each threshold and minimum recall; ``memory`` forecasts
the memory of an index from small indexes on a real server; ``templates`` and ``advice`` tell what is worth knowing.
"""
