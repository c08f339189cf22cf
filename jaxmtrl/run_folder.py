"""The run folder: whose it is, and where everything of a run lies.

runs/<name>/config.yaml       the resolved config; another config is refused
            tokenizer/        the tokenizer of the run
            metrics.jsonl, tensorboard/, episodes.jsonl
            checkpoints/      position to resume from; the newest few
            stages/           the policy at the end of each stage, for evaluation and as KL reference
            result.json       success of every policy on every split
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

from jaxmtrl.config.loading import config_to_dict, differing_fields, save_config
from jaxmtrl.config.sections import Config
from jaxmtrl.errors import ResumeError

CONFIG_FILE = "config.yaml"
RESULT_FILE = "result.json"
# Fields that change what a person sees or how fast it goes, never what is learnt; a resumed run may change them.
_FREE_FIELDS = ("run.dir", "run.compilation_cache", "log.", "rollout.workers", "checkpoint.keep")


class RunFolder:
    """Paths of one run, and the check that a config may go on with it."""

    def __init__(self, path: Path):
        self.path = path
        self.tokenizer = path / "tokenizer"
        self.checkpoints = path / "checkpoints"
        self.stages = path / "stages"

    @classmethod
    def open(cls, config: Config) -> RunFolder:
        """The folder of `config.run`, made if it is new.

        Raises:
            ResumeError: the folder belongs to another config; all fields that differ are named.
        """
        path = Path(config.run.dir) / config.run.name
        stored = path / CONFIG_FILE
        if stored.exists():
            before = yaml.safe_load(stored.read_text(encoding="utf-8"))
            # Through JSON, so that a tuple in memory and a list in the file are the same thing.
            given = json.loads(json.dumps(config_to_dict(config)))
            differences = [d for d in differing_fields(before, given) if not d.startswith(_FREE_FIELDS)]
            if differences:
                raise ResumeError(
                    f"{path} was begun with another config; it differs in:\n"
                    + "\n".join(f"  - {difference}" for difference in differences)
                    + "\nResume with the old values, choose another run.name, or remove the folder."
                )
        elif path.exists() and any(path.iterdir()):
            raise ResumeError(f"{path} is not empty and holds no {CONFIG_FILE}; choose another run.name or remove it.")
        path.mkdir(parents=True, exist_ok=True)
        save_config(config, stored)
        return cls(path)

    def write_result(self, result: dict[str, Any]) -> Path:
        """Writes result.json; the file is either the old one or the whole new one."""
        return write_json(self.path / RESULT_FILE, result)


def write_json(path: Path, content: Any) -> Path:
    """Writes indented JSON at once or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    return path
