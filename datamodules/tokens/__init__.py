"""Sequences of tokens for discrete flow models: known chains, digits, text, files of tokens."""
