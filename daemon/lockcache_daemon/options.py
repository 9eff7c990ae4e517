"""The settings as options of a command line: one for each field, none of them written twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from pydantic import BaseModel

from lockcache_daemon.settings import DirectorySettings, Settings
from lockcache_daemon.sources import variable_of
from lockcache_daemon.values import Setting

__all__ = ["setting_options", "with_settings"]


def setting_options() -> list[click.Option]:
    """In the order of the fields, what concerns a directory first. Their values stay text: :mod:`.sources` reads it."""
    return [*_options(DirectorySettings), *_options(Settings)]


def with_settings(command: click.Command) -> click.Command:
    """Put them in front of the options that ``command`` has."""
    command.params[:0] = setting_options()
    return command


def _options(model: type[BaseModel]) -> Iterator[click.Option]:
    for name, info in model.model_fields.items():
        setting = next((each for each in info.metadata if isinstance(each, Setting)), None)
        if setting is not None:
            key = info.alias or name
            yield _option(key, setting, is_switch=info.annotation is bool)


def _option(key: str, setting: Setting, *, is_switch: bool) -> click.Option:
    notes = [f"[{variable_of(key)}]"]
    if setting.default is not None:
        notes.append(f"[default: {setting.default}]")
    how: dict[str, Any] = {"is_flag": True, "default": None} if is_switch else {"metavar": setting.metavar}
    return click.Option([f"--{key.replace('_', '-')}", key], help=" ".join([setting.help, *notes]), **how)
