"""Quality of the pairs that the product finds: the true pairs, computed without signatures, and the scores.

``join`` finds all pairs of a collection that are similar enough, without signatures, bands, buckets or a store, in the
shingle sets of ``pairs``; ``trial`` runs the same documents through the detector; ``scores`` compares the two with
``rates``, and ``misses`` explains every missed pair. ``nearest`` compares one document with all others.
"""
