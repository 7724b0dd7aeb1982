"""The digits: what they are, how they are split, and the order in which they come."""

import pytest
import torch
from data.images.helpers import as_set, whole

from phantomgrad_suite.data import Digits

pytestmark = pytest.mark.usefixtures("float32")
PARTS = ("train", "validation", "test")


def test_pixels_are_standardised_by_the_training_part():
    data = Digits()
    train, test = (whole(data, part).images for part in ("train", "test"))
    assert (train.shape, train.dtype) == ((1077, 1, 8, 8), torch.float32)
    assert abs(train.mean()) < 1e-5
    assert train.std().item() == pytest.approx(1, abs=1e-5)
    assert test.mean() != 0
    # One affine map for all: the values are still seventeen, evenly spaced.
    values = torch.cat([train, test]).unique()
    torch.testing.assert_close(values.diff(), (values[1] - values[0]).expand(16))


def test_parts_share_no_image():
    data = Digits()
    parts = [as_set(whole(data, part).images) for part in PARTS]
    assert len(set.union(*parts)) == sum(map(len, parts))
