"""The parts of a suite's test: its cases, `measured`, `expected`, and how a verdict becomes pytest's outcome.

    def test_pretrain(measured, expected):
        assert measured.tokens_per_second == expected.tokens_per_second
        assert measured.mfu == expected.mfu

The job's end comes from the fixture `outcome`, which the code that runs jobs provides.
"""
