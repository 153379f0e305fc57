"""Environments and replay of off-policy reinforcement learning."""
