"""Streaming near-duplicate detection: documents in from Kafka, verified near-duplicate alerts out."""

__version__ = "0.1.0"

__all__ = ["__version__"]
