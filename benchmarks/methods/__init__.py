"""The headline experiments of each method, as data: one file a method, each with a tuple ``EXPERIMENTS``."""
