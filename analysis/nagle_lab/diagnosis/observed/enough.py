"""How many candidates, or samples, are enough to tell; and shares of them."""

REPEATED = 3  # candidates, or samples: one or two may be an accident
COMPARABLE = 5  # from this many on, median and spread can be compared
CONCLUSIVE = 10  # and of so many the slowest tenth tells as well
NEARLY_ALL, HARDLY_ANY = 0.8, 0.1  # shares: what so many do all do; what so few do may be chance
A_FEW = 0.25  # share: up to this many may be exceptions
MOST_LOOKED_AT = 1_000  # examine at most this many; more would not change the answer
