"""TLVS: steering of a vision-language model by how much each token depends on the image."""
