"""CUDA's autocast rules and the behaviour of its kernels, on the CPU."""

from amp_lessons.autocast.cuda_on_cpu.gpu_kernels import ProductsInFp32, cuda_kernels, quick_products
from amp_lessons.autocast.cuda_on_cpu.rules import RulesStatus, cuda_rules, policy_on_cpu, region

__all__ = [
    "ProductsInFp32",
    "RulesStatus",
    "cuda_kernels",
    "cuda_rules",
    "policy_on_cpu",
    "quick_products",
    "region",
]
