"""The texts: their parts, their facts, and the errors about them."""

import pytest
from text_data import write_texts

from phantomgrad_suite.data import WikiText103
from phantomgrad_suite.data.text.corpora import encode, number_words
from phantomgrad_suite.runs.errors import UserError

SMALL = {"batch_size": 4, "test_batch_size": 2, "segment_length": 10}


@pytest.fixture
def root(tmp_path):
    write_texts(tmp_path / "wikitext-103")
    return tmp_path


def tokens(root, name):
    text = (root / "wikitext-103" / f"wiki.{name}.tokens").read_text()
    return len(text.split()) + text.count("\n")


def test_wikitext_has_the_words_of_its_training_text(root):
    data = WikiText103(root=str(root), **SMALL)
    assert data.sizes() == {"vocabulary": 101}
    assert data.evaluation_sets == ("test", "validation")
    facts = data.facts()
    assert (facts["name"], facts["vocabulary"]) == ("wikitext103", 101)
    assert "reduced" not in facts
    assert facts["train"] == tokens(root, "train")
    assert (facts["validation"], facts["test"]) == (tokens(root, "valid"), tokens(root, "test"))
    (batch, *_) = data.train_dataloader()
    assert batch.tokens.shape == batch.targets.shape == (4, 10)
    for loader, name in zip(data.val_dataloader(), ("test", "valid"), strict=True):
        assert loader.dataset.length == tokens(root, name) // 2


def test_unknown_word_is_reported_with_file_and_line(root):
    path = root / "wikitext-103" / "wiki.valid.tokens"
    path.write_text("w1 w2\nw3 nowhere\n")
    data = WikiText103(root=str(root), **SMALL)
    with pytest.raises(UserError, match=r"wiki\.valid\.tokens, line 2: .* no word 'nowhere'"):
        data.sizes()


TEXT = ["b a\u00a0a", "", "  c a \u2003 b  ", "d"]


def test_unknown_words_become_unk():
    numbers = number_words(TEXT, unknown=True)
    assert [*numbers] == ["<eos>", "a", "b", "c", "d", "<unk>"]
    assert encode(numbers, ["a c e", "b"], "text").tolist() == [1, 3, 5, 0, 2, 0]
