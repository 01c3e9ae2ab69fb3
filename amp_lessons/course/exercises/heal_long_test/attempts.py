"""Half-mended evaluations, and unusual right ones."""

from __future__ import annotations

import statistics

import torch
import torch.nn.functional as F

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_long_test")
wrong = TABLE.mutant
right = TABLE.variant

ZERO = "new_zeros((), dtype=torch.float32)"
IN_16_BITS = (ZERO, "new_zeros(())")
LOSS = 'loss_sum += F.cross_entropy(logits.float(), targets, reduction="sum")'
CORRECT = "correct += (logits.argmax(dim=-1) == targets).sum()"
RETURN = "return (loss_sum / samples).item(), (correct / samples).item()"
CAST = "return (loss_sum.float() / samples).item(), (correct.float() / samples).item()"

wrong(
    "logarithm_of_a_softmax_in_16_bits",
    "wrong_loss",
    "the mean loss is",
    (LOSS, 'loss_sum += F.nll_loss(logits.softmax(dim=-1).log(), targets, reduction="sum")'),
)
wrong("cast_at_the_end", "metric_stops", "256 right answers", IN_16_BITS, (RETURN, CAST))
wrong(
    "losses_alone_in_fp32",
    "metric_stops",
    "takes no more ones",
    (
        "correct, samples = zero.clone(), zero.clone(), 0",
        "correct, samples = zero.clone(), zero.to(logits_dtype(model)), 0",
    ),
    ("@torch", "def logits_dtype(model):\n    return next(model.parameters()).dtype\n\n\n@torch"),
)
wrong(
    "counts_alone_in_fp32",
    "wrong_loss",
    "mean loss",
    IN_16_BITS,
    (CORRECT, CORRECT.replace("correct +=", "correct = correct.float() +")),
)
wrong(
    "model_cast_up",
    "inputs_changed",
    "cast",
    ("    zero =", "    model.float()\n    zero ="),
    ("model(inputs)", "model(inputs.float())"),
)
wrong(
    "model_copied_up",
    "products_in_another_dtype",
    "ran in fp32",
    ("    zero =", "    import copy\n\n    model = copy.deepcopy(model).float()\n    zero ="),
    ("model(inputs)", "model(inputs.float())"),
)
wrong(
    "running_mean",
    "wrong_accuracy",
    "0.906250 instead of 0.905000",
    (CORRECT, CORRECT + "\n        accuracy = (correct / (samples + len(targets))).to(logits.dtype)"),
    (RETURN, "return (loss_sum / samples).item(), accuracy.item()"),
)
wrong(
    "percent",
    "wrong_accuracy",
    "instead of",
    ("(correct / samples).item()", "100 * (correct / samples).item()"),
)
wrong("last_batch_alone", "wrong_accuracy", "instead of", (CORRECT, CORRECT.replace("+=", "=")))
wrong(
    "nan_left_out",
    "nan_hidden",
    "the mean loss",
    (LOSS, LOSS.replace("loss_sum += ", "loss_sum += torch.nan_to_num(") + ")"),
)
wrong(
    "class_of_the_largest_probability",
    "wrong_accuracy",
    "901 samples in batches of 3",
    (CORRECT, CORRECT.replace("argmax", "softmax(dim=-1).argmax")),
)
HITS = "(logits.argmax(dim=-1) == targets)"
for kept in ("uint8", "int8", "bfloat16", "float16"):
    wrong(
        f"classes_in_{kept}",
        "wrong_accuracy",
        "of 5,000 classes",
        (
            CORRECT,
            CORRECT.replace("dim=-1)", f"dim=-1).to(torch.{kept})").replace(
                "targets", f"targets.to(torch.{kept})"
            ),
        ),
    )
wrong(
    "counted_in_int16",
    "wrong_accuracy",
    "40,000 samples",
    ("correct, samples = zero.clone(), zero.clone(), 0", "correct, samples = zero.clone(), zero.short(), 0"),
    (CORRECT, CORRECT.replace(".sum()", ".sum().short()")),
)
wrong(
    "counted_in_a_byte",
    "wrong_accuracy",
    "instead of",
    ("correct, samples = zero.clone(), zero.clone(), 0", "correct, samples = zero.clone(), zero.byte(), 0"),
    (CORRECT, CORRECT.replace(".sum()", ".sum().byte()")),
)
wrong(
    "as_many_as_in_the_first_batch",
    "wrong_accuracy",
    "in batches of 3",
    ("        samples += len(targets)\n", "        samples += len(loader[0][1])\n"),
)
wrong(
    "sums_kept_from_call_to_call",
    "wrong_accuracy",
    "instead of",
    ("model, loader):", "model, loader, kept=[]):"),
    (
        "    loss_sum, correct, samples = zero.clone(), zero.clone(), 0",
        "    loss_sum, correct, samples = kept or (zero.clone(), zero.clone(), 0)",
    ),
    (RETURN, "kept[:] = loss_sum, correct, samples\n    " + RETURN),
)
wrong(
    "running_mean_of_losses_in_16_bits",
    "wrong_loss",
    "instead of",
    (
        LOSS,
        "loss_sum = loss_sum.to(logits.dtype)\n        loss_sum += (F.cross_entropy(logits.float(), targets) - loss_sum).to(logits.dtype) * (len(targets) / (samples + len(targets)))",
    ),
    ("(loss_sum / samples).item()", "loss_sum.item()"),
)
wrong(
    "labels_smoothed",
    "wrong_loss",
    "instead of",
    (LOSS, LOSS.replace('"sum")', '"sum", label_smoothing=0.1)')),
)
wrong("mean_losses_summed", "wrong_loss", "instead of", (LOSS, LOSS.replace(', reduction="sum"', "")))
wrong(
    "accuracy_first",
    "wrong_accuracy",
    "instead of",
    (RETURN, "return (correct / samples).item(), (loss_sum / samples).item()"),
)
wrong("one_number", "wrong_return_type", "two floats", (RETURN, "return (correct / samples).item()"))


@TABLE.mistake("wrong_accuracy", "in batches of 3")
@torch.no_grad()
def means_of_the_batches(model, loader):
    losses, shares = [], []
    for inputs, targets in loader:
        logits = model(inputs)
        losses.append(F.cross_entropy(logits.float(), targets).item())
        shares.append((logits.argmax(-1) == targets).float().mean().item())
    return statistics.fmean(losses), statistics.fmean(shares)


@TABLE.mistake("wrong_accuracy", "0.906250 instead of 0.905000")
@torch.no_grad()
def gathered_and_summed_in_16_bits(model, loader):
    losses, hits = [], []
    for inputs, targets in loader:
        logits = model(inputs)
        losses.append(F.cross_entropy(logits, targets, reduction="none"))
        hits.append((logits.argmax(-1) == targets).to(logits.dtype))
    losses, hits = torch.cat(losses), torch.cat(hits)
    return losses.mean().item(), hits.mean().item()


@TABLE.mistake("metric_stops", "256 right answers")
@torch.no_grad()
def sums_of_python_over_tensors(model, loader):
    hits = [(model(x).argmax(-1) == y).sum().to(next(model.parameters()).dtype) for x, y in loader]
    losses = [F.cross_entropy(model(x), y, reduction="sum") for x, y in loader]
    samples = sum(len(y) for _, y in loader)
    return float(sum(losses)) / samples, float(sum(hits)) / samples


right("the_solution")
right("in_fp64", ("dtype=torch.float32", "dtype=torch.float64"))
right(
    "tensors_come_back",
    (RETURN, "return loss_sum / samples, correct / samples"),
    notes=("returned_a_tensor",),
)


@TABLE.correct()
@torch.inference_mode()
def numbers_of_python(model, loader):
    loss_sum, correct, samples = 0.0, 0, 0
    for inputs, targets in loader:
        logits = model(inputs)
        loss_sum += F.cross_entropy(logits.float(), targets, reduction="sum").item()
        correct += int((logits.argmax(dim=-1) == targets).sum())
        samples += len(targets)
    return loss_sum / samples, correct / samples


@TABLE.correct()
@torch.no_grad()
def gathered_logits(model, loader):
    logits = torch.cat([model(inputs) for inputs, _ in loader]).float()
    targets = torch.cat([targets for _, targets in loader])
    return F.cross_entropy(logits, targets).item(), (logits.argmax(-1) == targets).double().mean().item()


@TABLE.correct()
@torch.no_grad()
def losses_in_16_bits_summed_in_more(model, loader):
    """Each loss is rounded, which is no harm: their sum is not."""
    loss_sum, correct, samples = 0.0, 0, 0
    for inputs, targets in loader:
        logits = model(inputs)
        loss_sum += float(F.cross_entropy(logits, targets)) * len(targets)
        correct += (logits.argmax(dim=-1) == targets).sum()
        samples += targets.numel()
    return loss_sum / samples, correct.item() / samples


@TABLE.correct()
@torch.no_grad()
def weighted_running_mean(model, loader):
    loss = accuracy = 0.0
    seen = 0
    for inputs, targets in loader:
        logits = model(inputs).double()
        seen += len(targets)
        share = len(targets) / seen
        loss += share * (F.cross_entropy(logits, targets).item() - loss)
        accuracy += share * ((logits.argmax(-1) == targets).double().mean().item() - accuracy)
    return loss, accuracy


wrong(
    "mean_of_the_batches_means",
    "wrong_loss",
    "in batches of 4",
    (LOSS, LOSS.replace(', reduction="sum"', "")),
    ("(loss_sum / samples)", "(loss_sum / len(loader))"),
)
