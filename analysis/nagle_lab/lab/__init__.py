"""The lab: turns one variant of a scenario into a run folder. It records packets and never interprets them."""
