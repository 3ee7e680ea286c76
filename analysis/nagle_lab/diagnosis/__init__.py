"""What a whole capture shows: the proof, the causes of its idle time, the verdict, the result."""
