"""Reproduce and diagnose TCP's Nagle × delayed-ACK stall."""

__version__ = "0.1.0"
