"""Prints what Megatron-Bridge makes of command lines of its setup_experiment.py, by its own code.

    python suites/megatron_bridge/resolve.py FOLDER <LINES

FOLDER is Megatron-Bridge's scripts/performance. LINES and what is printed are JSON: a list of lists of arguments, and a
mapping for each. The code is upstream's, so run it only at a commit that is trusted.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from types import SimpleNamespace
from typing import Any

_NAME = re.compile(
    r"gpus(?P<gpus>\d+)_tp(?P<tp>\d+)_pp(?P<pp>\d+)_cp(?P<cp>\d+)_vp(?P<vp>\d+|None)_ep(?P<ep>\d+)_etp(?:\d+|None)"
    r"_mbs(?P<mbs>\d+)_gbs(?P<gbs>\d+)"
)


def configuration(parser: Any, utils: Any, arguments: list[str]) -> dict[str, Any]:
    """The configuration that upstream names the experiment by, and what the name lacks. Raises ValueError."""
    args, unknown = parser.parse_cli_args().parse_known_args(arguments)
    if unknown:
        raise ValueError(f"setup_experiment.py does not know {' '.join(unknown)}")
    workload = (
        *(args.model_family_name, args.model_recipe_name, args.gpu),
        *(args.compute_dtype, args.task, args.config_variant),
    )
    name = utils.get_exp_name_config(args, *workload)
    sizes = _NAME.fullmatch(name)
    if not sizes:
        raise ValueError(f"{name!r} is of no known form")
    base = utils.get_workload_base_config(*workload)
    return {
        **{key: 1 if size == "None" else int(size) for key, size in sizes.groupdict().items()},
        "dtype": args.compute_dtype,
        "sharded": bool(args.use_megatron_fsdp or base.use_megatron_fsdp),
        "hidden": args.hidden_size,
        "layers": args.num_layers,
    }


def main(folder: str) -> None:
    # The parser asks NeMo-Run for a folder's name, and for nothing else.
    stand_in: Any = SimpleNamespace(get_nemorun_home=lambda: "")
    sys.modules |= {"nemo_run": stand_in, "nemo_run.config": stand_in}
    sys.path.insert(0, folder)
    parser, utils = importlib.import_module("argument_parser"), importlib.import_module("utils.utils")
    json.dump([configuration(parser, utils, line) for line in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
