"""Byte-pair encoding: the first merges by hand, and words that the text lacks."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from phantomgrad_suite.data.text.subwords import BytePairs

WORDS = {"low": 5, "lower": 2, "newest": 6, "widest": 3}  # Sennrich et al. (2016), Algorithm 1


def test_the_most_frequent_pairs_become_parts():
    """e-s and s-t occur nine times each: the later one in the alphabet is first."""
    pairs = BytePairs(WORDS, size=13)
    letters = sorted({*"delinosw", "w</w>", "r</w>", "t</w>"})
    assert pairs.parts == [*letters, "st</w>", "est</w>"]
    assert pairs.split("newest") == ["n", "e", "w", "est</w>"]


def test_unknown_words_are_split_by_the_same_merges():
    pairs = BytePairs(WORDS, size=100)
    assert pairs.split("lowest") == ["lo", "west</w>"]
    assert pairs.split("low") == ["low</w>"]
    assert pairs.split("xlow") == ["low</w>"]  # no word of the text has an x
    assert pairs.spelled("lowest low\n") == "lo west</w> low</w>"


@given(st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=8), st.integers(1, 20))
def test_words_of_the_text_are_joined_from_their_parts(words, size):
    counts = Counter(words)
    pairs, repeated = BytePairs(counts, size), BytePairs(dict(reversed(counts.items())), size)
    assert pairs.parts == repeated.parts
    assert len(set(pairs.parts)) == len(pairs.parts)
    for word in words:
        assert "".join(pairs.split(word)) == f"{word}</w>"
        assert set(pairs.split(word)) <= set(pairs.parts)
