"""What launchers, container runtimes and log drivers print around each line.

srun --label; torchrun's role and rank; NeMo-Run; mpirun --tag-output; kubectl logs --prefix, --timestamps; stern; kubetail;
containerd v1.7 pkg/cri/io/logger.go (cut at 16 KiB: `P` goes on, `F` is the end); moby v25 daemon/logger/jsonfilelog;
journalctl; ts of moreutils; docker compose logs; logcli; aws logs tail; Fluent Bit; gcloud logging read --format=json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

STAMP = "2025-04-11T14:46:18.123456789Z"

PREFIXES = {
    "srun": "17: ",
    "srun-padded": "   7: ",
    "torchrun": "[default0]:",
    "nemo-run": "retraining/0 [default0]:",
    "nemo-run-alone": "retraining/0 ",
    "mpirun": "[1,5]<stdout>:",
    "kubectl-prefix": "[pod/pacemark-workload-0-0/workload] ",
    "kubectl-timestamps": f"{STAMP} ",
    "kubectl-both": f"[pod/pacemark-workload-0-0/workload] {STAMP} ",
    "stern": "pacemark-workload-0-0-x7k2p workload ",
    "kubetail": "[pacemark-workload-0-0-x7k2p workload] ",
    "containerd": f"{STAMP} stdout F ",
    "containerd-stderr": f"{STAMP} stderr F ",
    "containerd-offset": "2025-04-11T14:46:18.123456789+02:00 stdout F ",
    "journalctl": "Apr 11 14:46:18 gpu001 train[4711]: ",
    "ts": "Apr 11 14:46:18 ",
    "compose": "train-1  | ",
    "logcli": f'{STAMP} {{app="train"}} ',
    "aws-logs": "2025-04-11T14:46:18.123000+00:00 train/default/0 ",
}


def _go(text: str) -> str:
    """As Go's encoding/json writes it."""
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


WRAPPED: dict[str, Callable[[str], str]] = {
    "docker": lambda line: f'{{"log":{_go(line)},"stream":"stdout","time":"{STAMP}"}}\n',
    "fluent-bit": lambda line: (
        f'{{"date":1744382778.123,"stream":"stdout","message":{json.dumps(line.rstrip(chr(10)))}}}\n'
    ),
    "cloud-logging": lambda line: f'    "textPayload": {json.dumps(line.rstrip(chr(10)))},\n',
}

AROUND = (*PREFIXES, *WRAPPED)


def around(name: str, text: str) -> str:
    """The log with this around each of its lines."""
    lines = re.findall(r"[^\n]*\n|[^\n]+$", text)
    return "".join(WRAPPED[name](line) if name in WRAPPED else PREFIXES[name] + line for line in lines)
