"""What the optional package diffusers gives; where it is missing, one error names the extra that brings it."""

from typing import Any

try:
    import diffusers as package
    from diffusers.configuration_utils import ConfigMixin, register_to_config
    from diffusers.schedulers import KarrasDiffusionSchedulers, SchedulerMixin
    from diffusers.utils import BaseOutput
except ImportError as error:
    raise ImportError("schedulers, pipelines and samplers of diffusers need it: pip install 'leyden[diffusion]'") from error

diffusers: Any = package
"""The package; it loads its parts when they are asked for."""

__all__ = ["BaseOutput", "ConfigMixin", "KarrasDiffusionSchedulers", "SchedulerMixin", "diffusers", "register_to_config"]
