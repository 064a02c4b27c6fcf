"""What a training log states, and the parser that reads it as a stream. Pure.

A parser accepts any bytes without an exception. Its memory grows with the number of steps, not with the
length of the log. `plugins.judging.validity` says what a log means for the case.
"""

from plugins.logs.log import Attempt, FlopsName, Log, Span, Step

__all__ = ["Attempt", "FlopsName", "Log", "Span", "Step"]
