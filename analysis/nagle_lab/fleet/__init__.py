"""Captures of many hosts: series of rotated files, read in stretches by any number of workers, into one store."""
