"""The least program that runs the fleet's jobs over SSH: the same requests by paramiko, without a ledger, verdict or report.

python -m tests.bench.requests_alone HOST PORT USER KEY FOLDER JOBS COMMAND
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import paramiko

_MARK = "here it begins"
_AT_ONCE = 4
_POLL_SECONDS, _READ_SECONDS = 1.0, 1.5


def main(host: str, port: str, user: str, key: str, folder: str, jobs: str, command: str) -> None:
    """Submit the jobs by this command in this folder, and follow their states and logs until all have ended."""
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect(host, int(port), user, key_filename=key, allow_agent=False)

    def ask(script: str) -> str:
        # The login node greets before it answers.
        answer = client.exec_command(f"cd {folder} && echo {_MARK} && {script}")[1].read().decode()
        return answer.partition(f"{_MARK}\n")[2]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        ids = [answer.strip() for answer in pool.map(ask, [command] * int(jobs))]
    logs, read = " ".join(f"bare-{job}.out" for job in ids), time.monotonic()
    while set(ask(f"squeue --noheader --states=all --jobs={','.join(ids)} --format=%T").split()) != {
        "COMPLETED"
    }:
        time.sleep(_POLL_SECONDS)
        if time.monotonic() - read > _READ_SECONDS:
            read = time.monotonic()
            ask(f"tail --quiet --bytes=2000 {logs}")
    ask(f"cat {logs}")
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
