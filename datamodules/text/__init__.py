"""Text for language models: corpora, tokenizers, windows, shards of tokens."""
