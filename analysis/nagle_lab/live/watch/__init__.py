"""Packets watched as they come: recorded, kept for a while, judged, and counted."""
