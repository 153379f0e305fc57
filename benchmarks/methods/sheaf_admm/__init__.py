"""Headline experiments of Sheaf-ADMM.

All runs of an experiment see the same boards or images (``generator_seed``). The seed of a repetition draws the initial weights and
the order and augmentation of the data, alike for all variants: a repetition compares them on the very same batches.
"""

from benchmarks.methods.sheaf_admm.interventions import INTERVENTIONS
from benchmarks.methods.sheaf_admm.kkt import KKT
from benchmarks.methods.sheaf_admm.maze import MAZE, MAZE_ABLATIONS
from benchmarks.methods.sheaf_admm.memory import MEMORY
from benchmarks.methods.sheaf_admm.mnist import MNIST
from benchmarks.methods.sheaf_admm.sudoku import SUDOKU_4X4, SUDOKU_6X6, SUDOKU_6X6_LONGER

EXPERIMENTS = (KKT, SUDOKU_4X4, SUDOKU_6X6, SUDOKU_6X6_LONGER, MAZE, MAZE_ABLATIONS, INTERVENTIONS, MNIST, MEMORY)
