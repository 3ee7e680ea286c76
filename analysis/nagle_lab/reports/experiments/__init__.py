"""What the experiments came to: on the screen, and as pages of Markdown."""
