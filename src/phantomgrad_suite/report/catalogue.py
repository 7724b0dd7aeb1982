"""What the paper shows, in its order, and the command that makes each piece of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Artifact:
    """A table, figure or theorem of the paper, or a task of our own.

    Attributes:
        key: how the names of its files begin.
        label: its short name, for example ``Table 4``.
        title: what it shows.
        command: what makes its records.
        data: the data set it must be run on to count as made, empty where any will do.
        parts: the beginnings of headings that its page must have to count as made.
    """

    key: str
    label: str
    title: str
    command: str
    data: str = ""
    parts: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """Label and title."""
        return f"{self.label}: {self.title}"

    @property
    def kind(self) -> str:
        """The word that the title of its page begins with."""
        return self.label.split()[0]

    def owns(self, stem: str) -> bool:
        """Return whether a file is a part of it: for table 1 ``table1_curves``, not ``table10``."""
        rest = stem.removeprefix(self.key)
        return rest != stem and not (self.key[-1].isdigit() and rest[:1].isdigit())


PAPER = (
    Artifact(
        "figure1",
        "Figure 1",
        "precision of the phantom gradient in the synthetic setting",
        "python scripts/study.py suite=figure1",
    ),
    Artifact(
        "table1", "Table 1", "ablation settings on CIFAR-10", "python scripts/train.py table=table1"
    ),
    Artifact(
        "table2",
        "Table 2",
        "time and memory of the gradients",
        "python scripts/study.py study=table2/cpu",
    ),
    Artifact(
        "figure2",
        "Figure 2",
        "precision of the phantom gradient in training",
        "python scripts/train.py table=figure2",
        data="CIFAR-10",
    ),
    Artifact(
        "figure3",
        "Figure 3",
        "damping λ, steps k, and UPG against NPG",
        "python scripts/train.py table=figure3",
        data="CIFAR-10",
    ),
    Artifact(
        "table3",
        "Table 3",
        "DEQ and MDEQ on vision and language",
        "python scripts/train.py table=table3_vision",
    ),
    Artifact("table4", "Table 4", "IGNN on graph tasks", "python scripts/train.py table=table4"),
    Artifact(
        "figure4",
        "Figure 4",
        "gradient solvers under ill-conditioning",
        "python scripts/study.py suite=figure4",
    ),
    Artifact(
        "theorem",
        "Theorems 1 to 3",
        "descent, convergence of the gradient, convergence of SGD",
        "python scripts/study.py suite=theorems",
        parts=("Theorem 1", "Theorem 2", "Theorem 3"),
    ),
)
TASKS = (
    Artifact(
        "chains",
        "Chains",
        "IGNN on the embedded default data",
        "python scripts/train.py table=chains",
    ),
    Artifact(
        "digits",
        "Digits",
        "a convolutional DEQ on handwritten digits",
        "python scripts/train.py table=digits",
    ),
    Artifact(
        "lm",
        "Python help",
        "tiny DEQ-Transformers on the help texts of Python",
        "python scripts/train.py table=lm",
    ),
    Artifact(
        "wikitext",
        "WikiText-103 (valid)",
        "small DEQ-Transformers on its validation text",
        "python scripts/train.py table=wikitext",
    ),
    Artifact(
        "ppi",
        "PPI (synthetic)",
        "narrow IGNNs on random graphs in the shapes of PPI",
        "python scripts/train.py table=ppi",
    ),
    Artifact(
        "tune",
        "Tuning",
        "λ chosen on validation data",
        "python scripts/train.py tune=lambda_cox2",
    ),
    Artifact(
        "throughput",
        "Throughput",
        "training steps of the paper's rows on synthetic batches",
        "make throughput",
    ),
)
SPEED = Artifact("bench", "Speed", "solvers and gradients against torchdeq", "make bench")
