"""Headline experiments that need no training."""
