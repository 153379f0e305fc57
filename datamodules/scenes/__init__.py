"""A world of small scenes: coloured glyphs on a grid, captions and questions about them, all made on the spot."""
