"""`python -m tests.lab.k8s`: a cluster to work with by hand."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from pathlib import Path

from tests.lab.daemons import LabError
from tests.lab.k8s.access import CONTEXT
from tests.lab.k8s.cluster import KubernetesLab
from tests.lab.k8s.objects import MACHINES


def main() -> int:
    """Bring a lab up, say how to reach it, and keep it until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.k8s", description=main.__doc__)
    parser.add_argument("--nodes", type=int, default=64, help="nodes of each machine type (default 64)")
    parser.add_argument("--machines", nargs="+", default=list(MACHINES), choices=list(MACHINES))
    parser.add_argument("--root", type=Path, help="an empty folder; kept at the end")
    options = parser.parse_args()
    enough = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: enough.set())
    started = time.monotonic()
    try:
        with KubernetesLab(options.root, options.nodes, options.machines) as lab:
            _tell(lab, time.monotonic() - started)
            enough.wait()
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _tell(lab: KubernetesLab, seconds: float) -> None:
    memory = lab.memory()
    print(f"{len(lab.nodes)} nodes of 8 GPUs are ready after {seconds:.1f} s. To use them:")
    print(f"  export KUBECONFIG={lab.kubeconfig}   # context {CONTEXT}, may do anything")
    print("Pods of JobSets and PyTorchJobs say what the recipes' say; how, is set for each namespace:")
    knobs = lab.root / "knobs" / "default"
    print(
        f"  mkdir -p {knobs}; echo '{{\"real_step\": 0.5}}' > {knobs}/lab.json   # tests/lab/recipe/knobs.py"
    )
    print("Memory in MB: " + ", ".join(f"{name} {size}" for name, size in memory.items()), end="")
    print(f"; together {sum(memory.values())}")
    facts = {
        "root": str(lab.root),
        "kubeconfig": str(lab.kubeconfig),
        "context": CONTEXT,
        "server": lab.server,
    }
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
