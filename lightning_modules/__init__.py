"""Methods as LightningModules; a name is imported when it is first used."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "dtop_p.controller": ["SparsityController"],
        "dtop_p.convert": ["convert_topk_to_dtopp"],
        "dtop_p.diffusion_module": ["MoEDiffusionModule"],
        "dtop_p.fine_tune_module": ["MoEFineTuneModule"],
        "dtop_p.language_module": ["MoELanguageModule"],
        "dtop_p.moe": ["MoEFeedForward"],
        "dtop_p.router": ["TopPRouter"],
        "gesc.connection": ["U1Connection"],
        "gesc.conv": ["GESCConv"],
        "gesc.module": ["GESCModule"],
        "gesc.network": ["GESC"],
        "gesc.node_classifier": ["NodeClassifier"],
        "protosac.distillation": ["KMeansPolicyModule", "PWNetModule"],
        "protosac.module": ["ProtoSACModule"],
        "protosac.prototype_actor": ["PrototypeActor"],
        "r2r2.redundancy": ["RedundancyReduction", "SelfPredictiveLoss"],
        "r2r2.representation_module": ["RepresentationModule"],
        "r2r2.simba_module": ["SimbaV2Module"],
        "r2r2.td7_module": ["TD7Module"],
        "rl.policy_agent": ["PolicyAgent"],
        "rl.sac_module": ["SACModule"],
        "sheaf_admm.cnn_module": ["PatchCNNModule"],
        "sheaf_admm.maze": ["MazeTask"],
        "sheaf_admm.mnist": ["MNISTPatchTask"],
        "sheaf_admm.module": ["RecurrentMPNNModule", "SheafADMMModule"],
        "sheaf_admm.sudoku": ["SudokuTask"],
        "tlvs.benchmarks": ["AMBERDiscriminative", "AMBERGenerative", "CHAIR", "HallusionBench", "MMHal", "POPE"],
        "tlvs.benchmark_module": ["VLMBenchmarkModule"],
        "tlvs.module": ["TLVSModule"],
        "tlvs.tiny_vlm_module": ["SceneVLMModule"],
    },
)
