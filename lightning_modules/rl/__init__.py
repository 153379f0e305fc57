"""Off-policy reinforcement learning that several methods extend."""
