"""Does the mean come out, in fp32, and is it really a ring: who sends what to whom, in which dtype?"""

from __future__ import annotations

from collections.abc import Iterator

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises.attempt import Attempt, require_none, run
from amp_lessons.exercises.reduce_mean import mistakes
from amp_lessons.exercises.reduce_mean.network import Network, on_ranks
from amp_lessons.exercises.reduce_mean.scenarios import Scenario, scenarios
from amp_lessons.parallel import sent_bytes


def check(attempt: Attempt) -> Iterator[Finding]:
    """Reduce the gradients of several numbers of ranks, over a network that remembers everything."""
    reduce_mean = attempt.function([], 0, 1, None, None).function
    for scenario in scenarios():
        network, given = Network(scenario.ranks), scenario.chunks()
        arguments = [(chunks, rank, scenario.ranks) for rank, chunks in enumerate(given)]
        results = run(on_ranks, network, reduce_mean, arguments, about=scenario.what)
        require_none(mistakes.of_network(network, scenario))
        require_none(mistakes.of_inputs(given, scenario))
        require_none(mistakes.of_traffic(network, scenario))
        require_none(mistakes.of_results(results, scenario))
    yield from _what_holds(scenario)


def _what_holds(last: Scenario) -> Iterator[Finding]:
    yield passed("mean_of_ranks", "every rank returns the same mean, as exact as sums in fp32 are")
    yield passed("sent_in_fp32", "every sum travelled in fp32")
    share = sent_bytes("all-reduce", 1, last.ranks)
    yield passed(
        "ring",
        f"ranks talked to their neighbours only, and sent 2 (n - 1) / n of the gradient: {share} of it on "
        f"{last.ranks} ranks",
    )
