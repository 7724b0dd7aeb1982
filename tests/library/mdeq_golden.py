"""Numbers of the official MDEQ code in float64, and the rules that fill a model to get them.

From the phantom-gradient release, commit 9d321cf; there is no official NPG, whose rows come from
vector-Jacobian products of the official map. Statistics are mean, L2 norm and the first elements.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from phantomgrad import FixedPoint, GradientEstimator, Solver, UnrolledPhantomGradient
from phantomgrad.models import MDEQ

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "channels": (24, 24),
        "head_channels": (8, 16),
        "features": 200,
        "injection": False,
    },
    "large": {
        "channels": (32, 64, 128, 256),
        "head_channels": (14, 28, 56, 112),
        "features": 1680,
    },
    "imagenet_small": {
        "channels": (32, 64, 128, 256),
        "head_channels": (24, 48, 96, 192),
        "features": 2048,
        "stem_strides": (2, 2),
        "init_std": None,
    },
}
CLASSES = {"tiny": 10, "large": 10, "imagenet_small": 1000}
# Evaluations of f in a solve, one more than the steps; entries of one state.
BUDGETS = {"tiny": (23, 30_720), "large": (19, 61_440), "imagenet_small": (27, 188_160)}
LABELS = torch.tensor([3, 7])
STAY = FixedPoint(max_evaluations=1, tol=0)  # the start is the only candidate: no solve
UPG = UnrolledPhantomGradient(5, 0.5)


def sized(
    size: str, solver: Solver = STAY, gradient: GradientEstimator = UPG, **settings: Any
) -> MDEQ:
    """A model of the paper."""
    return MDEQ(3, CLASSES[size], solver, gradient, **SIZES[size], **settings)


@torch.no_grad()
def filled(model: MDEQ, *, contractive: bool = False) -> MDEQ:
    """Fill every parameter from its row-major index; ``contractive``: fill B, else fill A."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            parameter.copy_(_values(module, name, parameter, contractive))
    if contractive:
        for post in model.deq.cell.post:
            post[-1].weight.mul_(0.03)
    return model


def _values(module: nn.Module, name: str, parameter: Tensor, contractive: bool) -> Tensor:
    n = torch.arange(parameter.numel(), dtype=torch.float64).view(parameter.shape)
    phase = n * n + n + 1 if contractive else n + 1
    if name == "bias":
        return 0.1 * phase.cos()
    norm = isinstance(module, nn.GroupNorm | nn.BatchNorm2d)
    gain = name == "original0"  # of the weight norm
    return 1 + 0.1 * phase.sin() if norm or gain else 0.1 * phase.sin()


def images(batch: int = 2, side: int = 32) -> Tensor:
    """``sin(0.1 n)``."""
    shape = (batch, 3, side, side)
    return (0.1 * torch.arange(batch * 3 * side**2, dtype=torch.float64)).sin().view(shape)


def cosine_state(model: MDEQ, u: Tensor) -> tuple[Tensor, ...]:
    """``cos(0.1 n)`` on each scale, in the memory order of the model's own states."""
    return tuple(
        z.copy_((0.1 * torch.arange(z.numel(), dtype=torch.float64)).cos().view(z.shape))
        for z in model.start(u.detach())
    )


def statistics(x: Tensor, elements: int = 3) -> list[float]:
    """Mean, L2 norm, first elements in row-major order."""
    x = x.detach().contiguous().flatten()
    return [x.mean().item(), torch.linalg.vector_norm(x).item(), *x[:elements].tolist()]


GRADIENTS = {
    "a": "stem.0.weight",
    "b": "stem.4.bias",
    "c": "deq.cell.blocks.0.conv1.parametrizations.weight.original1",
    "d": "deq.cell.blocks.0.conv1.parametrizations.weight.original0",
    "e": "deq.cell.blocks.1.norm3.weight",
    "f": "deq.cell.fusion.paths.1_to_0.0.weight",
    "g": "deq.cell.fusion.paths.0_to_1.0.weight",
    "h": "deq.cell.post.1.1.parametrizations.weight.original1",
    "i": "head.bottlenecks.0.main.3.weight",
    "j": "head.output.weight",
}


def gradient_norms(model: MDEQ) -> list[float]:
    """L2 norms of the gradients that the golden rows list."""
    return [
        torch.linalg.vector_norm(model.get_parameter(name).grad).item()
        for name in GRADIENTS.values()
    ]


# Eight digits behind the point; evaluation mode, fill A, the cosine state.
FORWARD: dict[str, dict[str, list[float]]] = {
    "tiny": {
        "u": [0.10011822, 37.97456988, 0, 0, 0],
        "y_0": [-0.00497781, 223.70194060, -0.07040477, -0.02215219, -0.28715773],
        "f_0(z)": [0.00114221, 228.59564870, -0.14776247, -0.31771712, -0.13067401],
        "f_1(z)": [-0.03485560, 111.89051772, 1.00393888, 0.96922979, 0.80610928],
        "f_0(0)": [-0.01609587, 227.64185969, 0.46428773, 0.51709156, 0.47698245],
        "f_1(0)": [-0.02063737, 113.55563083, -0.00817744, 0.11701272, 0.22615222],
    },
    "large": {
        "u": [0.06424963, 28.91874284, 0.01377168, 0.06964153, 0.10224391],
        "y_0": [0.00245687, 265.03252279, 0.38734627, 1.14098317, 1.62805930],
        "f_0(z)": [-0.00660860, 259.71504186, -0.75795257, -0.76074645, -0.80022821],
        "f_1(z)": [-0.00041739, 185.02389953, -0.07300650, -0.23016549, 0.04606856],
        "f_2(z)": [0.00019379, 130.04300596, 0.21770713, 0.45398919, 0.43700613],
        "f_3(z)": [-0.00052680, 91.83209885, 0.21293070, 0.51445632, 0.44117721],
        "f_0(0)": [-0.00744929, 259.68206162, -0.32670531, -0.45129699, -0.51634479],
        "f_1(0)": [-0.00351827, 184.84503432, 0.43762192, -0.13095877, -0.15332267],
    },
}
LOGITS = {
    "tiny": [0.34220720, -0.76137826, -1.08849610, -0.30974213],
    "large": [9.13314303, -1.02068285, -7.74813103, 12.08566671],
}
# |f(z) - z| over the batch at each evaluation of Broyden's method from zero, by the first step: +g
# in the later codes, -g in the authors'.
BROYDEN: dict[tuple[str, float], list[float]] = {
    ("tiny", 1.0): [
        *(254.392802, 395.910734, 278.434689, 397.834643, 262.413639),
        *(384.542441, 272.303074, 348.404921, 262.107802),
    ],
    ("tiny", -1.0): [
        *(254.392802, 427.547721, 928.667424, 284.910457, 385.390611),
        *(278.936608, 361.112785, 252.268932, 362.836566),
    ],
    ("large", 1.0): [
        *(356.294803, 221.679011, 145.624141, 90.969807, 71.448876),
        *(65.009695, 51.010117, 42.384893, 42.045415),
    ],
    ("large", -1.0): [
        *(356.294803, 633.192939, 619.638113, 210.990722, 150.848312),
        *(90.232274, 85.358483, 65.785203, 53.973449),
    ],
}
# Training mode, 10 applications from zero.
UNROLLED_LOSS = {"tiny": 2.64345885, "large": 6.02028630}

# Training mode, Tiny, fill A, from a given state: loss, logit[0, 0], then GRADIENTS.
# Six digits; UPG from the zero state, by (steps, damping).
FROM_ZERO: dict[tuple[int, float], list[float]] = {
    (1, 1.0): [
        *(2.63525181, 0.39813036, 1.06304, 0.0882587, 0, 0),
        *(0.145428, 1.39977, 0.176328, 0.0403519, 1.33534, 3.6306),
    ],
    (5, 0.5): [
        *(2.65184184, 0.39062186, 9.76625, 1.06455, 7.64986, 0.0718415),
        *(0.405011, 1.19726, 7.47465, 63.1077, 1.54381, 3.38561),
    ],
    (9, 0.5): [
        *(2.71321038, 0.46122772, 11.907, 1.49181, 20.8043, 0.231786),
        *(2.44503, 1.95711, 18.3837, 414.925, 2.00303, 3.52373),
    ],
    (5, 1.0): [
        *(2.68766732, 0.44389370, 2.40453, 0.183014, 5.73907, 0.0600162),
        *(0.185518, 0.50564, 2.95637, 22.2555, 1.5402, 3.68181),
    ],
}
# Nine digits; from the cosine state, damping 0.5, by (estimator, steps).
FROM_COSINE: dict[tuple[str, int], list[float]] = {
    ("npg", 1): [
        *(2.72261259565, 0.504590303612, 13.8609287, 2.86935249, 56.0967676, 1.12179136),
        *(0.916283558, 12.3752964, 3.31448763, 0.76371215, 4.40697713, 4.14611285),
    ],
    ("npg", 5): [
        *(2.72261259565, 0.504590303612, 140.017074, 11.3267496, 140.475826, 9.01961764),
        *(4.51037501, 32.776903, 204.327164, 804.786262, 4.40697713, 4.14611285),
    ],
    ("upg", 1): [
        *(2.63567947356, 0.426221671981, 0.670869772, 0.0412567483, 1.49633334, 0.0471967076),
        *(0.0711379339, 0.766188403, 0.305087772, 0.109855169, 2.273234, 3.94372832),
    ],
    ("upg", 5): [
        *(2.66010259335, 0.426837082547, 6.66526199, 0.253177506, 6.19252144, 0.164077352),
        *(0.312011755, 1.03252074, 6.26902169, 53.8739389, 1.60689673, 3.65703145),
    ],
}
# L2 norm and first elements of the gradient of u, NPG from the cosine state, by steps.
INJECTION_GRADIENT = {
    1: [0.563081242806, -0.000783976450443, -0.00299169039771, -0.00129924689279],
    5: [6.95294450893, 0.00245712388511, -0.011098771435, -0.0212985295765],
}

# Training mode, Tiny, fill B: the equilibrium, and the gradients there by (estimator, steps).
FIXED_POINT = [
    [0.00392831564166, 18.0282049275, 0.0802809319513, 0.0536206447633, 0.0680281599086],
    [0.00391206416738, 9.18703779458, 0.0452849888296, 0.0868576961423, 0.0863458724237],
]
_AT_EQUILIBRIUM = (2.55600680644, 1.02655483807)
_OF_FIVE_STEPS = [
    *(*_AT_EQUILIBRIUM, 2.71612033, 0.0475308878, 0.633892938, 0.0410048385),
    *(0.0379462018, 0.371603742, 0.663135252, 0.800619795, 0.328141543, 3.6230007),
]
FROM_FIXED_POINT: dict[tuple[str, int], list[float]] = {
    ("implicit", 0): [
        *(*_AT_EQUILIBRIUM, 3.04863913, 0.0486810771, 0.698284668, 0.0442174283),
        *(0.0430646419, 0.410771234, 0.715240487, 0.868627311, 0.328141543, 3.6230007),
    ],
    ("npg", 5): _OF_FIVE_STEPS,
    ("upg", 5): _OF_FIVE_STEPS,
    ("npg", 9): [
        *(*_AT_EQUILIBRIUM, 2.9677103, 0.0486520588, 0.684196834, 0.0436668657),
        *(0.0420200044, 0.399074281, 0.706693902, 0.85341356, 0.328141543, 3.6230007),
    ],
}
# Cosine to the exact gradient and relative error, over stem and cell, by (steps, damping).
DISTANCE_TO_EXACT = {
    (1, 1.0): [0.832353334, 0.554827562],
    (1, 0.5): [0.832353334, 0.685548745],
    (5, 0.5): [0.985521731, 0.188407285],
    (9, 0.5): [0.998346016, 0.0597384017],
}
