"""Vision-language benchmarks: their official annotation files, the user's images, and files of answers."""
