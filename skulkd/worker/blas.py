"""What an operator is told when runners do not have the BLAS that `runtime.blas` asks for."""

from skulkd.wire.cluster import NodeWarning


def slow_blas(problem: str) -> NodeWarning:
    """`problem` is the runner's reason for staying with the library that MLX brings."""
    return NodeWarning(
        message=f"runners multiply with MLX's slow reference BLAS: {problem}. Prompts are read"
        " many times slower than this machine could",
        remediation="install the [node] extra, which brings scipy-openblas32, or correct"
        " runtime.blas; then restart skulkd",
    )
