"""Commands about captures and run folders."""
