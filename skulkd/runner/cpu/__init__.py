"""What makes MLX fast on a CPU. No effect where there is an accelerator."""
