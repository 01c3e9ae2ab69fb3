"""What is measured, the most telling first.

Each module has ``parts(place)``, the names of its parts, and ``run(name, place)``, which returns what one of
them found. They are run in processes of their own, and import what they need only there.
"""

from tools.gpu.conductor import Step

STEPS = (
    Step("peaks", f"{__name__}.peaks", "Memory of a training step: predicted, and allocated", 40, 120),
    Step("tests", f"{__name__}.gpu_tests", "Tests that need a GPU", 60, 300),
    Step("autocast", f"{__name__}.autocast_rules", "CUDA's autocast, asked on the CPU, and CUDA", 30, 120),
    Step(
        "products", f"{__name__}.products", "Matrix products: the course's rates, and a plain sweep", 30, 120
    ),
    Step("census", f"{__name__}.census", "Gradients counted on the GPU, and on the CPU", 30, 120),
    Step("bench", f"{__name__}.bench", "amp-lessons bench, as PyTorch runs a model by itself", 40, 180),
    Step("notebooks", f"{__name__}.notebooks", "Every notebook, run on the GPU", 120, 300),
    Step("compiled", f"{__name__}.compiled", "amp-lessons bench, compiled", 90, 300),
)
"""``usual_s`` and ``limit_s`` are guesses about a GPU of 2022 or later, generous ones."""
