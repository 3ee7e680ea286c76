"""The frames behind a finding: excerpts, annotation, Wireshark's view."""
