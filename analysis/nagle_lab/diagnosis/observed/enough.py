"""How many candidates, or samples, are enough to tell; and shares of them."""

REPEATED = 3  # candidates, or samples: one or two may be an accident
COMPARABLE = 5  # so many have a median and a spread to compare
CONCLUSIVE = 10  # and of so many the slowest tenth tells as well
NEARLY_ALL, HARDLY_ANY = 0.8, 0.1  # shares: what so many do all do; what so few do may be chance
FEW_LATE = 0.25  # of the prompt ones come a little later, and none after that: no pause ends so
MOST_LOOKED_AT = 1_000  # of those, where all of them would say no more
