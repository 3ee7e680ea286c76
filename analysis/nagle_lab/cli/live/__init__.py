"""Commands about what runs on this host now."""
