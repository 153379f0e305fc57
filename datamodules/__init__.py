"""Data modules; a name is imported when it is first used."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "base": ["LeydenDataModule"],
        "graphs.gauge_sbm": ["GaugeSBMDataModule"],
        "graphs.heterophilous": ["HeterophilousGraphDataModule"],
        "image_latents": ["ImageLatentDataModule"],
        "labelled_images": ["LabelledImageDataModule"],
        "mazes": ["MazeDataModule"],
        "mnist_patches": ["MNISTPatchDataModule"],
        "prompts": ["PromptDataModule"],
        "point_clouds": ["GaussianMixtureDataModule"],
        "rl.datamodule": ["RLDataModule"],
        "rl.teacher": ["TeacherDataModule"],
        "rl.transitions": ["TransitionDataModule"],
        "scenes.datamodule": ["SceneDataModule"],
        "sudoku": ["SudokuDataModule"],
        "text.corpus": ["TextCorpusDataModule"],
        "text.token_shards": ["TokenShardDataModule"],
        "tokens.chain_data": ["BigramOracleDataModule", "MarkovBlocksDataModule"],
        "tokens.digits": ["DigitTokensDataModule"],
        "tokens.folder": ["TokenizedFolderDataModule"],
        "tokens.text": ["TextTokensDataModule"],
        "vlm.benchmark": ["BenchmarkDataModule"],
    },
)
