"""What generative models of images share: paths from noise to data, their random numbers, and how good the samples are."""
