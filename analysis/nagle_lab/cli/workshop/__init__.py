"""The workshop: a guided walk through the incidents (predict, run, reveal), then captures to diagnose."""
