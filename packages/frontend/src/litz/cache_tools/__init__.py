"""Operations on cache folders: listing, verification, merging, archives, quotas, and reasons of misses."""
