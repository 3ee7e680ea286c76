"""Scenarios as data: what a ``scenario.toml`` may say, and the parameters of one run."""
