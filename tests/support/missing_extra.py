"""A module whose package is an optional extra that looks as if it were not installed."""

raise ModuleNotFoundError("No module named 'submitit'", name="submitit")
