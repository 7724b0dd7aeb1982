"""Simple predictors on the data of the experiments: what a trained model must beat to say anything.

A reduced row supports or refutes a claim only if its runs are better than these on the same data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from phantomgrad_suite.data import Cifar10, GraphFolds
from phantomgrad_suite.data.graphs import Graph
from phantomgrad_suite.data.text.streams import LanguageData
from phantomgrad_suite.studies.base import Findings, Study, progress, rounded

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ImageBaselines(Study):
    """Logistic regression, and a support vector machine with RBF kernel, on standardised pixels.

    The constant C of each is chosen among ``strengths`` by cross-validation on the training images.
    """

    data: Cifar10
    strengths: Sequence[float] = (0.01, 0.1, 1.0, 10.0)

    def measure(self, seed: int, device: torch.device) -> Findings:
        (x, y), (test_x, test_y) = (
            (part.images.flatten(1).numpy(), part.labels.numpy())
            for part in (self.data.pixels[name] for name in ("train", "test"))
        )
        scores = {
            name: rounded(
                GridSearchCV(scaled(model), {f"{step}__C": list(self.strengths)}, cv=3)
                .fit(x, y)
                .score(test_x, test_y)
            )
            for name, step, model in (
                ("logistic regression", "logisticregression", LogisticRegression(max_iter=1000)),
                ("RBF-SVM", "svc", SVC()),
            )
        }
        return _found(self.data.facts(), "accuracy", scores)


@dataclass(frozen=True, kw_only=True)
class TextBaselines(Study):
    """Interpolated Kneser-Ney models of the given ``orders``, on the tokens of a language row."""

    data: LanguageData
    orders: Sequence[int] = (2, 3, 4, 5)

    def measure(self, seed: int, device: torch.device) -> Findings:
        corpus = self.data.corpus
        train, test = (corpus.parts[name].numpy().astype(np.int64) for name in ("train", "test"))
        scores = {
            f"Kneser-Ney, order {n}": rounded(
                np.exp(-np.log(kneser_ney(train, test, corpus.vocabulary, n)).mean())
            )
            for n in self.orders
        }
        return _found(self.data.facts(), "perplexity", scores)


@dataclass(frozen=True, kw_only=True)
class GraphBaselines(Study):
    """The most frequent class, and logistic regression on sums and means of the node features.

    The score is the mean over the ``folds`` of ``data``, and a list has that of each fold.
    """

    data: GraphFolds

    def measure(self, seed: int, device: torch.device) -> Findings:
        models = {
            "most frequent class": DummyClassifier(),
            "logistic regression on features": scaled(LogisticRegression(max_iter=1000)),
        }
        x = np.stack([bag(graph) for graph in self.data.graphs])
        y = np.array([int(graph.labels) for graph in self.data.graphs])
        splits = [self.data.split_of(fold) for fold in range(self.data.folds)]
        by_fold = {
            name: [
                rounded(model.fit(x[s.train], y[s.train]).score(x[s.test], y[s.test]))
                for s in splits
            ]
            for name, model in models.items()
        }
        scores = {name: rounded(float(np.mean(values))) for name, values in by_fold.items()}
        return _found(self.data.facts(), "accuracy", scores, folds=by_fold)


def _found(facts: dict[str, Any], metric: str, scores: dict[str, float], **more: Any) -> Findings:
    data = {name: facts[name] for name in ("name", "fingerprint")}
    return Findings({"data": data, "metric": metric, "scores": scores, **more})


def scaled(model: Any) -> Pipeline:
    """Return ``model`` on standardised inputs."""
    return make_pipeline(StandardScaler(), model)


def bag(graph: Graph) -> Array:
    """Return numbers of nodes and edges, and sums and means of the node features."""
    features = graph.features.numpy()
    sizes = [len(features), graph.edges.shape[1]]
    return np.concatenate([sizes, features.sum(axis=0), features.mean(axis=0)])


def kneser_ney(train: Array, test: Array, vocabulary: int, order: int) -> Array:
    r"""Return the probability of each token of ``test`` but the first ``order - 1``.

    Interpolated Kneser-Ney (Chen and Goodman, 1999, eq. 22) from orders 1 to n, with the uniform
    distribution below and one discount D an order, estimated from the n-grams that occur once and
    twice:

    .. math:: p(w \mid h) = \frac{\max(c(h w) - D, 0) + D \, N(h) \, p(w \mid h')}{c(h)} , \qquad
              D = \frac{n_1}{n_1 + 2 n_2}

    ``c`` are counts at the highest order, and numbers of distinct preceding tokens below it; N(h)
    is the number of distinct tokens after h, and h' is h without its first token. Tokens are
    integers below ``vocabulary``.
    """
    if vocabulary**order > np.iinfo(np.int64).max:
        raise ValueError(f"order must give n-grams that 63 bits can number, got {order}")
    p = np.full(len(test) - order + 1, 1 / vocabulary)
    for n in progress(range(1, order + 1)):
        grams = _grams(train, n, vocabulary)
        if n < order:
            grams = np.unique(_grams(train, n + 1, vocabulary)) % vocabulary**n
        known, counts = np.unique(grams, return_counts=True)
        once, twice = (counts == 1).sum(), (counts == 2).sum()
        discount = once / (once + 2 * twice) if once else 0.0
        contexts, of_context = np.unique(known // vocabulary, return_inverse=True)
        tested = _grams(test, n, vocabulary)[-len(p) :]
        count = _looked_up(known, counts, tested)
        total, kinds = (
            _looked_up(contexts, np.bincount(of_context, weights), tested // vocabulary)
            for weights in (counts, None)
        )
        mixed = np.maximum(count - discount, 0) + discount * kinds * p
        p = np.divide(mixed, total, out=p, where=total > 0)
    return p


def _grams(tokens: Array, n: int, vocabulary: int) -> Array:
    """Return every n-gram as one integer, a digit to the base ``vocabulary`` for each token."""
    digits = vocabulary ** np.arange(n - 1, -1, -1)
    return np.lib.stride_tricks.sliding_window_view(tokens, n) @ digits


def _looked_up(keys: Array, values: Array, wanted: Array) -> Array:
    """Return the value of each wanted key, 0 for those that are not among the sorted ``keys``."""
    at = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)
