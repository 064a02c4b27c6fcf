"""The executor on Kubernetes, which no recipe here uses; upstream asks whether a job's executor is one."""


class KubeflowExecutor:
    """Nothing is an instance of it."""
