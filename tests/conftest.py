"""Shared by all tests. pytest puts this folder on the import path, which is how tests reach `support`."""
