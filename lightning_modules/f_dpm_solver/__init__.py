"""F-DPMSolver: first-order diffusion sampling that evaluates the network at the end of a step, and the samplers beside it."""
