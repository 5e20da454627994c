"""Quality of the pairs that the product finds: a truth computed without signatures, and the scores against it.

``truth`` finds all pairs of a collection that are similar enough, without signatures, bands, buckets or a store;
``trial`` runs the same documents through the detector; ``scores`` compares the two, and ``misses`` explains every
missed pair. ``nearest`` compares one document with all others.
"""
