"""Kneser-Ney against its definition, and baselines on data where the best score is known."""

import numpy as np
import pytest
import torch

from phantomgrad_suite.data import Cifar10, Corpus, ImageBatch, WikiText103
from phantomgrad_suite.studies.baselines import (
    ImageBaselines,
    TextBaselines,
    kneser_ney,
)

CPU = torch.device("cpu")


def by_definition(train, context, word, vocabulary, highest=True):
    """One probability, by counting: ``train`` holds n-grams, of which a lower order keeps kinds."""
    if context is None:
        return 1 / vocabulary
    grams = train if highest else sorted(set(train))
    tails = [gram[-len(context) - 1 :] for gram in grams]
    counts = {tail: tails.count(tail) for tail in set(tails)}
    once, twice = (sum(c == n for c in counts.values()) for n in (1, 2))
    discount = once / (once + 2 * twice) if once else 0
    after = {tail: count for tail, count in counts.items() if tail[:-1] == context}
    shorter = [gram[-len(context) - 1 :] for gram in train] if highest else train
    shorter = [gram[-len(context) - 1 :] for gram in shorter]
    lower = by_definition(shorter, context[1:] if context else None, word, vocabulary, False)
    if not after:
        return lower
    mass = max(after.get((*context, word), 0) - discount, 0)
    return (mass + discount * len(after) * lower) / sum(after.values())


@pytest.mark.parametrize("order", [1, 2, 3])
def test_kneser_ney_is_its_definition(order):
    rng = np.random.default_rng(order)
    train, test = rng.integers(0, 4, 60), rng.integers(0, 4, 20)
    grams = [tuple(map(int, train[i : i + order])) for i in range(len(train) - order + 1)]
    found = kneser_ney(train, test, 5, order)
    assert len(found) == len(test) - order + 1
    for i, p in enumerate(found):
        *context, word = map(int, test[i : i + order])
        assert p == pytest.approx(by_definition(grams, tuple(context), word, 5), rel=1e-12)


def test_images_whose_first_pixel_shows_the_class_are_classified():
    data = Cifar10(root="", name="cifar10-8x8", resolution=8)
    labels = torch.arange(10).repeat(8)
    images = torch.randint(0, 20, (80, 3, 4, 4), generator=torch.Generator().manual_seed(0))
    images[:, 0, 0, 0] = 25 * labels
    batch = ImageBatch(images.byte(), labels)
    data.__dict__["pixels"] = {"train": batch, "test": batch}
    numbers = ImageBaselines(data=data).measure(0, CPU).numbers
    assert numbers["metric"] == "accuracy"
    assert set(numbers["scores"]) == {"logistic regression", "RBF-SVM"}
    assert min(numbers["scores"].values()) > 0.9
    assert numbers["data"]["fingerprint"] == data.facts()["fingerprint"]


def test_text_that_follows_from_two_words_is_predicted_by_three():
    """After 0 there is 1 or 2, in turn: two words leave it open in half of the places."""
    data, text = WikiText103(root="", name="wikitext103-characters"), torch.tensor([0, 1, 0, 2])
    parts = {"train": text.repeat(1000), "test": text.repeat(100)}
    data.__dict__["corpus"] = Corpus(parts, 3, "")
    numbers = TextBaselines(data=data, orders=(2, 3)).measure(0, CPU).numbers
    assert numbers["metric"] == "perplexity"
    assert [*numbers["scores"].values()] == pytest.approx([2**0.5, 1], rel=1e-2)
