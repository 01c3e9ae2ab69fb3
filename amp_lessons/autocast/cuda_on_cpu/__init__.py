"""CUDA's autocast rules and the behaviour of its kernels, on the CPU."""

from amp_lessons.autocast.cuda_on_cpu.gpu_kernels import Float16Products, cuda_kernels
from amp_lessons.autocast.cuda_on_cpu.rules import RulesStatus, cuda_rules, policy_on_cpu, region

__all__ = ["Float16Products", "RulesStatus", "cuda_kernels", "cuda_rules", "policy_on_cpu", "region"]
