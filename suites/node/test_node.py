"""Each node trains at the pace of its type of GPU. A test that is added behind these compares the nodes with each other.

The cases are those of the recipe proxy that fill a node, one for each node of the cluster: docs/isolation.md.
"""


def test_node(measured, expected):
    assert measured.tokens_per_second == expected.tokens_per_second
    assert measured.mfu == expected.mfu
