"""CUDA's autocast rules and the behaviour of its kernels, on the CPU."""

from amp_lessons.autocast.cuda_on_cpu.gpu_kernels import ProductsInFp32 as ProductsInFp32
from amp_lessons.autocast.cuda_on_cpu.gpu_kernels import cuda_kernels as cuda_kernels
from amp_lessons.autocast.cuda_on_cpu.gpu_kernels import quick_products as quick_products
from amp_lessons.autocast.cuda_on_cpu.rules import RulesStatus as RulesStatus
from amp_lessons.autocast.cuda_on_cpu.rules import cuda_rules as cuda_rules
from amp_lessons.autocast.cuda_on_cpu.rules import policy_on_cpu as policy_on_cpu
from amp_lessons.autocast.cuda_on_cpu.rules import region as region
