"""How many candidates or samples are enough to decide, and shares of them."""

REPEATED = 3  # candidates, or samples: one or two may be an accident
COMPARABLE = 5  # from this many on, median and spread can be compared
CONCLUSIVE = 10  # from this many on the slowest tenth tells something, too
NEARLY_ALL, HARDLY_ANY = 0.8, 0.1  # shares: what more do, all do; what fewer do may be chance
A_FEW = 0.25  # share: up to this many may be exceptions
MOST_LOOKED_AT = 1_000  # examine at most this many; more would not change the answer
