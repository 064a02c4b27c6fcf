"""What the frameworks print: one writer for each dialect's log, after the print statements of the upstream that its docstring names.

Each module has the functions of single lines, which need nothing but the standard library, and `render`, which prints the
log of a whole run (`run.Job`). The writers are made from the upstreams' sources and from public logs, and know nothing of the parsers.
Unit tests, the fuzzer, the benches and the trainers of the labs print by them.
"""
