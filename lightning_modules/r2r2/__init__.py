"""R2R2: self-predictive representations whose redundancy is kept low while every transition is used many times."""
