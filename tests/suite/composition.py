"""Hydra with a memory: the files behind a choice of groups are read and merged once a process.

A composition takes 0.15 s, most tests need several, and nearly all are of the same few rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from graph_data import REPOSITORY

CONFIGS = str(REPOSITORY / "configs")
_memory: dict[tuple[Any, ...], bytes] = {}


def _remembered(repository: Any, key: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
    """Return a new copy of the result; the files of the repository do not change, others may."""
    if not any(source.path == CONFIGS for source in repository.get_sources()):
        return compute()
    if key not in _memory:
        _memory[key] = pickle.dumps(compute())
    return pickle.loads(_memory[key])


@pytest.fixture(scope="session")
def composing_from_memory() -> Iterator[None]:
    """Hydra remembers what depends on files; it parses and applies overrides of values anew."""
    from hydra._internal import config_loader_impl as hydra
    from hydra._internal.config_repository import ConfigRepository

    load, choose = ConfigRepository.load_config, hydra.create_defaults_list
    merge = hydra.ConfigLoaderImpl._compose_config_from_defaults_list

    def load_config(self: Any, config_path: str) -> Any:
        return _remembered(self, ("file", config_path), lambda: load(self, config_path))

    def create_defaults_list(repo: Any, overrides_list: list[Any], **rest: Any) -> Any:
        values = [o for o in overrides_list if not repo.group_exists(o.key_or_group)]
        groups = [o for o in overrides_list if o not in values]
        key = ("choices", *(o.input_line for o in groups), *rest.items())
        found = _remembered(repo, key, lambda: choose(repo, overrides_list=groups, **rest))
        return replace(found, config_overrides=[o for o in values if not o.is_sweep_override()])

    def compose_defaults(self: Any, defaults: list[Any], repo: Any) -> Any:
        return _remembered(repo, ("merged", repr(defaults)), lambda: merge(self, defaults, repo))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigRepository, "load_config", load_config)
        patch.setattr(hydra, "create_defaults_list", create_defaults_list)
        name = "_compose_config_from_defaults_list"
        patch.setattr(hydra.ConfigLoaderImpl, name, compose_defaults)
        yield
