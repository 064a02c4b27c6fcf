"""A fuzzer of the judge: logs rendered as the upstreams print them, each with what is true of it.

It is written from the upstreams' sources and from public logs, and knows nothing of the parsers. `python -m tests.fuzz --help`.
"""
