"""What is timed beside a peer: one file a method, each with a tuple ``CASES``."""
