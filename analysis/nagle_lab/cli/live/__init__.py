"""Commands about running software on this host."""
