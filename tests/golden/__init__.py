"""What must not change: records of recorded runs, and the verdicts on pairs of faults. `python -m tests.golden` writes them anew."""
