"""The log formats by their names in `recipe.yaml`.

To add a format, add a module with its parser, and a line here.
"""

from __future__ import annotations

from dataclasses import dataclass

from plugins.logs.log import PrintedMeans


@dataclass(frozen=True)
class Format:
    """What a format can print. `parser` is the class of its parser, as `module:class`.

    `means` are those over several steps that it may print. `times_saves`: it states how long a checkpoint took.
    """

    parser: str
    means: PrintedMeans = "none"
    times_saves: bool = False


FORMATS = {
    "nemo1": Format("plugins.logs.nemo1:NeMo1", means="moving"),
    "nemo2": Format("plugins.logs.nemo2:NeMo2", times_saves=True),
    "maxtext": Format("plugins.logs.maxtext:MaxText"),
    "megatron_lm": Format("plugins.logs.megatron_lm:MegatronLM", means="intervals", times_saves=True),
    "megatron_bridge": Format(
        "plugins.logs.megatron_bridge:MegatronBridge", means="intervals", times_saves=True
    ),
    "dllogger": Format("plugins.logs.dllogger:DLLogger", means="separable"),
}
