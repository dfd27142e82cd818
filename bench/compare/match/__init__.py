"""A match: two programs that compute the same take turns, and how long each needs is compared."""
