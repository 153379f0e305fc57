"""Methods as LightningModules; a name is imported when it is first used."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "protosac.distillation": ["KMeansPolicyModule", "PWNetModule"],
        "protosac.module": ["ProtoSACModule"],
        "protosac.prototype_actor": ["PrototypeActor"],
        "rl.policy_agent": ["PolicyAgent"],
        "rl.sac_module": ["SACModule"],
        "sheaf_admm.cnn_module": ["PatchCNNModule"],
        "sheaf_admm.maze": ["MazeTask"],
        "sheaf_admm.mnist": ["MNISTPatchTask"],
        "sheaf_admm.module": ["RecurrentMPNNModule", "SheafADMMModule"],
        "sheaf_admm.sudoku": ["SudokuTask"],
    },
)
