"""What each command of nagle-lab does, a module each; ``cli`` imports the one that is called."""
