"""Probabilities of the next word, and texts made from them."""

import pytest
import torch
from small_models import VOCABULARY, some_memory, transformer, words


@pytest.mark.parametrize("cutoffs", [(6, 20), ()])
@torch.no_grad()
def test_log_probabilities_are_those_of_the_loss(cutoffs):
    model, (tokens, targets), memory = transformer(cutoffs=cutoffs).eval(), words(), some_memory()
    loss, after = model(tokens, targets, memory)
    logs, again = model.log_probs(tokens, memory)
    assert logs.shape == (3, 5, VOCABULARY)
    torch.testing.assert_close(logs.exp().sum(dim=2), torch.ones(3, 5))
    torch.testing.assert_close(-logs.gather(2, targets.unsqueeze(2)).squeeze(2), loss)
    assert torch.equal(after.states, again.states)


def test_the_likeliest_words_follow_one_another():
    model, (tokens, _) = transformer(memory_length=9).eval(), words()
    text = model.generate(tokens, 3, temperature=0)
    memory = None
    with torch.no_grad():
        logs, memory = model.log_probs(tokens, memory)
        for i in range(3):
            assert torch.equal(text[:, i], logs[:, -1].argmax(dim=1))
            logs, memory = model.log_probs(text[:, i : i + 1], memory)


def test_a_generator_repeats_a_text_and_temperature_flattens_it():
    model, (tokens, _) = transformer().eval(), words()
    draw = lambda seed, **options: model.generate(  # noqa: E731
        tokens, 6, generator=torch.Generator().manual_seed(seed), **options
    )
    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))
    cold = draw(0, temperature=1e-9)
    assert torch.equal(cold, model.generate(tokens, 6, temperature=0))
