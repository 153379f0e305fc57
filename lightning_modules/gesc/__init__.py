"""GESC: gauge-equivariant graph network whose messages lose the part that the receiving node already has."""
