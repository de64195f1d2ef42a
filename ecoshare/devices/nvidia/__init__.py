"""NVIDIA GPUs: NVML, knobs, MPS, checkpoints of device memory."""
