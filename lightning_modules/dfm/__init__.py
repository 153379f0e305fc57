"""Discrete flow models, and samplers that correct what a step freezes in time and in location."""
