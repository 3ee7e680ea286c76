"""Results of experiments: on the screen, and as pages of Markdown."""
