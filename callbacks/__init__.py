"""Callbacks that watch or steer a run from outside; a name is imported when it is first used."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "admm_diagnostics": ["ADMMDiagnostics"],
        "caption_figures": ["CaptionFigures"],
        "dtopp": ["DTopPCallback"],
        "ema": ["EMAWeights"],
        "episode_video": ["EpisodeVideo"],
        "exact_resume": ["ExactResume"],
        "gauge_monitor": ["SICMonitor"],
        "intervention_suite": ["InterventionSuite"],
        "oracle_test_maximum": ["OracleTestMaximum"],
        "progress": ["RunProgressBar"],
        "prototype_grounding": ["PrototypeGrounding"],
        "prototype_report": ["PrototypeReport"],
        "rank_consistency": ["RankConsistency"],
        "representation_monitor": ["RepresentationMonitor"],
        "routing_stats": ["RoutingStats"],
        "run_loggers": ["RunCSVLogger", "RunTensorBoardLogger"],
        "sample_files": ["SampleFiles"],
        "sample_grid": ["SampleGrid", "TimeDecileFigure"],
        "sampler_comparison": ["DiffusionCurves", "DiffusionSheet"],
        "sensitivity_trace": ["SensitivityTrace"],
        "suite_curves": ["SuiteCurves"],
        "test_outcomes": ["TestOutcomes"],
        "token_samples": ["SamplerCurves", "TokenSamples"],
        "wandb_logger": ["RunWandbLogger"],
        "word_routing": ["WordRouting"],
    },
)
