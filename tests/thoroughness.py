"""How many examples a property is tried on: a part of them in `make test`, all of them in `make test-all`."""

import hypothesis

#: Name of the hypothesis profile of `make test-all`.
THOROUGH = "thorough"
#: Which part of the examples `make test` tries, and how many at least.
QUICK_PART, QUICK_LEAST = 5, 10


def examples(count: int) -> int:
    """Return how many examples a property is tried on that needs ``count`` of them in a thorough run."""
    thorough = hypothesis.settings.get_current_profile_name() == THOROUGH
    return count if thorough else max(count // QUICK_PART, QUICK_LEAST)
