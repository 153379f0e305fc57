"""Who competes."""

TITLES = {
    "ddim": "DDIM",
    "f_dpm": "F-DDIM (F-DPMSolver, order 1)",
    "f_dpm_2": "F-DPMSolver, order 2",
    "eps_ms2": "multistep in ε, order 2",
    "eps_ms3": "multistep in ε, order 3",
    "dpmpp_2s": "DPM-Solver++ 2S",
    "dpmpp_2m": "DPM-Solver++ 2M",
    "dpmpp_3m": "DPM-Solver++ 3M",
    "unipc_code": "UniPC of the authors' program, order 3",
    "unipc": "UniPC of diffusers",
    "deis": "DEIS of diffusers",
    "ipndm": "iPNDM of diffusers",
    "heun": "Heun (EDM)",
}
"""Titles of the samplers, by their names in a comparison."""
