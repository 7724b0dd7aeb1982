"""The recursive reasoner against the numbers of the authors' TRM."""

import itertools

import pytest
import recursive_golden as golden
import torch

from phantomgrad import BackpropThroughSolver, Steps
from phantomgrad import UnrolledPhantomGradient as UPG
from phantomgrad.models import RecursiveReasoner

MIXERS = pytest.mark.parametrize("mixer", golden.NUMBERS["cases"])
# The last 1, 2, 7 and 21 of the elementary steps on the graph.
SCHEMES = {
    "laststep": (Steps(2), UPG(1, 1.0), 1),
    "onestep": (Steps(2), UPG(1, 1.0), 2),
    "recursion": (Steps(2), UPG(1, 1.0), 7),
    "bptt": (Steps(3), BackpropThroughSolver(), 7),
    "bptt by UPG": (Steps(0), UPG(3, 1.0), 7),
}


def close(ours, reference):
    assert ours == pytest.approx(reference, rel=1e-8, abs=1e-9)


def close_gradients(ours, reference):
    for name, g in ours.items():
        close([float(g.norm()), golden.probe(g)], reference[name])


def norm(gradients):
    return float(torch.stack([g.norm() for g in gradients.values()]).norm())


def cosine(a, b):
    return sum(float((a[name] * b[name]).sum()) for name in a) / norm(a) / norm(b)


@MIXERS
@torch.no_grad()
def test_network_and_embedding_are_the_authors(mixer):
    numbers, model = golden.NUMBERS["cases"][mixer], golden.filled(mixer)
    assert sum(p.numel() for p in model.parameters()) == numbers["parameters"]
    close(golden.statistics(model.embed(golden.TOKENS)), numbers["embedding"])
    network = model.deq.cell.network
    hidden, injection = (golden.pattern((3, 16, 32), j, 1) for j in (30, 31))
    close(golden.statistics(network(hidden, injection)), numbers["block"])
    close(golden.statistics(network.blocks[0](hidden)), numbers["layer0"])


@MIXERS
@torch.no_grad()
def test_recursions_are_the_authors(mixer):
    numbers, model = golden.NUMBERS["cases"][mixer], golden.filled(mixer)
    x, state, states = model.embed(golden.TOKENS), model.start(golden.TOKENS), []
    for _ in range(3):
        state = model.deq.cell(state, x)
        states.append(dict(zip("yz", map(golden.statistics, state), strict=True)))
    for ours, reference in zip(states, numbers.get("recursions", ()), strict=False):
        for name in "yz":
            close(ours[name], reference[name])
    summary = numbers["summary"]
    ours = [states[0]["y"][2], states[2]["y"][2], states[2]["z"][2]]
    close(ours, [summary["y_1"], summary["y_3"], summary["z_3"]])


@MIXERS
def test_two_segments_of_deep_supervision_are_the_authors(mixer):
    numbers, model, state = golden.NUMBERS["cases"][mixer], golden.filled(mixer), None
    summary, found = numbers["summary"], []
    for reference in numbers.get("segments", (None, None)):
        answer = model(golden.TOKENS, state)
        state = answer.state
        loss, gradients = golden.gradients(model, mixer, answer)
        found.append((loss, norm(gradients)))
        if reference is not None:
            y, z = answer.state
            for name, ours in {"y": y, "z": z, "logits": answer.logits}.items():
                close(golden.statistics(ours), reference[name])
            close(answer.logits[0, 3].tolist(), reference["row"])
            close(answer.halting.tolist(), reference["halting"])
            close(loss, reference["loss"])
            close_gradients(gradients, reference["gradients"])
    close(found[0], (summary["loss"], summary["norms"]["recursion"]))
    close(found[1], (summary["second_loss"], summary["second_norm"]))


@MIXERS
def test_gradients_of_all_schemes_are_the_authors(mixer):
    numbers, found = golden.NUMBERS["cases"][mixer], {}
    for scheme, (solver, gradient, recorded) in SCHEMES.items():
        model = golden.filled(mixer, solver, gradient, recorded=recorded)
        answer, name = model(golden.TOKENS), scheme.split()[0]
        loss, found[name] = golden.gradients(model, mixer, answer)
        close(loss, numbers["summary"]["loss"])
        close(norm(found[name]), numbers["summary"]["norms"][name])
        softmax, by_softmax = golden.gradients(model, mixer, model(golden.TOKENS), "softmax")
        close(softmax, numbers["summary"]["softmax"])
        if "schemes" in numbers:
            for kind, ours in (("stablemax", found[name]), ("softmax", by_softmax)):
                close_gradients(ours, numbers["schemes"][f"{name}_{kind}"]["gradients"])
    for a, b in itertools.combinations(("bptt", "laststep", "onestep", "recursion"), 2):
        if f"{a}~{b}" in numbers["cosine"]:
            close(cosine(found[a], found[b]), numbers["cosine"][f"{a}~{b}"])


@MIXERS
def test_damped_steps_are_those_of_eqr(mixer):
    reference = golden.NUMBERS["cases"][mixer]["damped"]
    model = golden.filled(mixer, damping=0.95)
    answer = model(golden.TOKENS)
    for name, ours in zip("yz", answer.state, strict=True):
        close(golden.statistics(ours), reference[name])
    close(answer.halting.tolist(), reference["halting"])
    loss, gradients = golden.gradients(model, mixer, answer)
    close(loss, reference["loss"])
    close_gradients(gradients, reference["gradients"])


MLP, ATTENTION = {"mixer": "mlp"}, {"mixer": "attention"}
PUBLISHED = {  # vocabulary, positions, settings
    "TRM Sudoku 9x9, token MLP, 16 puzzle positions": (11, 97, MLP),
    "same without puzzle positions": (11, 81, MLP),
    "TRM Sudoku 9x9, attention": (11, 97, ATTENTION),
    "TRM Sudoku 9x9, token MLP, 4 layers": (11, 97, MLP | {"blocks": 4}),
    "TRM maze 30x30, token MLP": (6, 916, MLP),
    "TRM maze 30x30, attention": (6, 916, ATTENTION),
    "EqR maze: attention, 1 layer, width 128, no puzzle positions": (
        6,
        900,
        ATTENTION | {"blocks": 1, "width": 128},
    ),
}
SMALL = {f"{s}x{s} token MLP d=64 / 96 / 128": s for s in (4, 6, 9)}


def count(vocabulary, positions, **settings):
    with torch.device("meta"):
        model = RecursiveReasoner(vocabulary, positions, Steps(2), golden.ONE, **settings)
    return sum(p.numel() for p in model.parameters())


def test_parameters_of_the_published_sizes():
    numbers = golden.NUMBERS["parameter_counts"]
    assert numbers.keys() == PUBLISHED.keys() | SMALL.keys()
    for name, (vocabulary, positions, settings) in PUBLISHED.items():
        assert count(vocabulary, positions, **settings) == numbers[name], name
    for name, side in SMALL.items():
        counts = [count(side + 2, side**2, width=width) for width in (64, 96, 128)]
        assert counts == numbers[name], name
