"""Takes off what container runtimes and log drivers put around a line. Pure.

A prefix before the line is no wrapping: whatever reads a line finds its words behind any prefix.
"""

from __future__ import annotations

import json
import re

# moby daemon/logger/jsonfilelog (`log`); what Fluent Bit and Vector (`message`) and Google Cloud Logging (`textPayload`) write.
_IN_JSON = re.compile(
    rb'\s*(?:\{.{0,1000}?)?"(?P<key>log|message|textPayload)": ?(?P<text>"(?:[^"\\]|\\.)*")'
)
# containerd pkg/cri/io/logger.go: a stamp, the stream, and P if the line goes on in the next one.
_GOES_ON = re.compile(rb"\S{20,40} std(?:out|err) P ")


def plain(line: bytes) -> tuple[list[bytes], bool]:
    """The lines that a process wrote, without the JSON that a log driver put around them, and whether they are whole.

    A container runtime cuts lines of more than 16 KiB.
    """
    if _GOES_ON.match(line):
        return [line], False
    wrapped = _IN_JSON.match(line) if line.lstrip()[:1] in (b"{", b'"') else None
    if wrapped is None:
        return [line], True
    try:
        text = str(json.loads(wrapped["text"]))
    except ValueError:
        return [line], True
    pieces = text.replace("\r", "\n").encode(errors="replace").split(b"\n")
    return pieces, wrapped["key"] != b"log" or pieces[-1] == b""
