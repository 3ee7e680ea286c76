"""Recording, from outside and inside: a command in a namespace, or what already runs."""
