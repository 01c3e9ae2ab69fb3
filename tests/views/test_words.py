import pytest

from amp_lessons.views.words import power_of_two, share


@pytest.mark.parametrize(
    ("value", "words"), [(1.0, "2^0"), (65536.0, "2^16"), (2.0**-24, "2^-24"), (1000.0, "1000"), (0.1, "0.1")]
)
def test_a_scale_is_a_power_of_two_where_it_is_one(value, words):
    assert power_of_two(value) == words


@pytest.mark.parametrize(
    ("count", "total", "words"),
    [
        (0, 5, "none"),
        (5, 5, "all"),
        (0, 0, "none"),
        (1, 3, "33.3 %"),
        (1, 10**6, "under 0.1 %"),
        (10**6 - 1, 10**6, "over 99.9 %"),
    ],
)
def test_a_share_is_never_rounded_to_nothing_or_everything(count, total, words):
    assert share(count, total) == words
