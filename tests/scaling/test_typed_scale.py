"""A typed loss scale is understood, or answered in words."""

import re

import pytest

from amp_lessons.scaling import parse_scale


@pytest.mark.parametrize(
    ("text", "scale"), [("65536", 65536.0), ("2^16", 65536.0), (" 1e3 ", 1000.0), ("2**-3", 0.125)]
)
def test_numbers_and_powers_are_understood(text, scale):
    assert parse_scale(text) == scale


@pytest.mark.parametrize("text", ["0", "-3", "-0", "nan", "inf", "2^200", "1e999", "2^-999", "abc", ""])
def test_what_is_no_scale_is_answered_in_words(text):
    with pytest.raises(ValueError, match=r"\w+ \w+ \w+"):
        parse_scale(text)


def test_the_limit_that_is_named_is_below_what_is_refused():
    with pytest.raises(ValueError, match="at most") as caught:
        parse_scale("2^128")
    limit, got = (float(number) for number in re.findall(r"\d\.\d+e\+38", str(caught.value)))
    assert limit < got
