"""The common trainer behind ``train.py``."""
