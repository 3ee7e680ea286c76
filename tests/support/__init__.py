"""What the tests are written with: synthetic captures with known truth, and the reference dissectors."""
