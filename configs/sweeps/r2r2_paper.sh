#!/bin/bash
# R2R2's grid at the paper's scale on a SLURM cluster: 11 tasks, 10 agents, 5 seeds, a GPU each. Started again it goes on where it stopped.
#   bash configs/sweeps/r2r2_paper.sh slurm_partition=gpu timeout_min=2880
tasks=(hopper_v5 walker2d_v5 ant_v5 humanoid_v5 humanoid_stand humanoid_walk humanoid_run dog_stand dog_walk dog_run dog_trot)
python -m benchmarks.headline r2r2 --seeds 5 --slurm --slurm-option gpus_per_node=1 "${@/#/--slurm-option=}" --only "${tasks[@]/#/paper_}"
