"""The soak: the same runs again and again, on a machine kept busy and on one left alone."""
