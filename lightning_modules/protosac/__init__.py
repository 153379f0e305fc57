"""ProtoSAC: Soft Actor-Critic whose actor decides by similarity to prototypes, each tied to a real state."""
