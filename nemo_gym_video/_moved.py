# SPDX-License-Identifier: Apache-2.0
"""Where the modules of version 0.1 are now; their old names work for one version, with a ``DeprecationWarning``.

``nemo_gym_video`` puts ``MovedFinder`` before Python's own finders: a folder that an older checkout left behind,
with nothing but ``__pycache__`` in it, would otherwise pass for the old package. An old module's name becomes a
second name of the new module object, so classes stay the same classes. Three modules are not listed because a
folder has their name now: ``prepare.caprl``, ``prepare.sav`` and ``prepare.synthetic``.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = "nemo_gym_video."
REMOVED_IN = "0.3"

# Old package, and the package whose names it offers. Its modules are in MODULES.
PACKAGES = {
    "tokens": "processors",
    "turns": "alignment",
    "tracking": "tasks.tracking",
    "answers": "tasks.answers",
    "gym": "servers",
    "episodes": "tasks",
    "tokens.families": "processors.families",
}

# Old module, new module.
MODULES = {
    "answers.boxed": "tasks.boxed.boxed_answer",
    "answers.envelope": "tasks.answers.envelope",
    "answers.options": "tasks.boxed.options",
    "answers.strict_json": "tasks.answers.strict_json",
    "answers.thinking": "tasks.answers.thinking",
    "answers.visible": "tasks.answers.visible",
    "baseline.policy": "baseline.respond",
    "baseline.process": "launch.embedded_policy",
    "capture": "alignment.capture",
    "contract.types": "contract.row_contract",
    "episodes.clip_explorer": "tasks.clip_explorer.explorer",
    "episodes.demo": "prepare.synthetic.demo_rows",
    "episodes.footage": "tasks.episode_media",
    "episodes.observation": "tasks.observation",
    "episodes.requests": "tasks.clip_explorer.requests",
    "episodes.rows": "prepare.synthetic.multi_turn_rows",
    "episodes.sav_stream": "tasks.sav_stream.stream",
    "episodes.sessions": "servers.sessions",
    "gym.agent": "servers.agent",
    "gym.answers": "servers.http_answers",
    "gym.blind": "tasks.blind_policies",
    "gym.budget": "servers.budget",
    "gym.catalog": "launch.catalogue",
    "gym.clients": "servers.clients",
    "gym.contracts": "servers.contracts",
    "gym.emit": "servers.emit",
    "gym.episode": "servers.play",
    "gym.evidence": "servers.evidence",
    "gym.failure": "servers.failure",
    "gym.fetch": "servers.fetch",
    "gym.host": "launch.host",
    "gym.inputs": "launch.inputs",
    "gym.launch": "launch.gym_servers",
    "gym.processes": "launch.processes",
    "gym.rollout": "launch.collection",
    "gym.scorers": "servers.scorers",
    "gym.settings": "servers.agent_config",
    "gym.stateless": "servers.task_verifier",
    "gym.stepping": "servers.episode_routes",
    "gym.tail": "launch.tail",
    "gym.variables": "servers.variables",
    "gym.verifier": "servers.verifier",
    "gym.workers": "servers.scoring_workers",
    "media.manifest": "media.frame_manifest",
    "media.worker": "media.decoder",
    "media.worker_main": "media.decoder_child",
    "media.worker_wire": "media.decoder_wire",
    "prepare.ask": "prepare.synthetic.ask",
    "prepare.blind": "prepare.blind_sum",
    "prepare.caprl_native": "prepare.caprl.caprl_published",
    "prepare.demo": "prepare.synthetic.demo_rows",
    "prepare.encode": "prepare.synthetic.encode",
    "prepare.expressions": "prepare.sav.expressions",
    "prepare.files": "prepare.whole_files",
    "prepare.footage": "prepare.synthetic.backgrounds",
    "prepare.frames": "prepare.frame_folders",
    "prepare.geometry": "prepare.sav.geometry",
    "prepare.options": "prepare.caprl.option_text",
    "prepare.prompts": "tasks.tracking.prompts",
    "prepare.questions": "prepare.synthetic.questions",
    "prepare.rows": "prepare.row_parts",
    "prepare.sav_media": "prepare.sav.sav_media",
    "prepare.sav_native": "prepare.sav.sav_published",
    "prepare.sav_rows": "prepare.sav.sav_rows",
    "prepare.scene": "prepare.synthetic.scene",
    "prepare.sources": "prepare.opening",
    "prepare.suite": "prepare.synthetic.suite",
    "prepare.workers": "prepare.executors",
    "refs": "alignment.pixels",
    "root": "servers.gym_root",
    "tokens.align": "alignment.calls",
    "tokens.assign": "alignment.shares",
    "tokens.checkpoints": "processors.checkpoints",
    "tokens.counts": "processors.counts",
    "tokens.differences": "processors.differences",
    "tokens.documents": "processors.documents",
    "tokens.families.base": "processors.families.base",
    "tokens.families.gemma4": "processors.families.gemma4",
    "tokens.families.hf": "processors.families.hf",
    "tokens.families.internvl": "processors.families.internvl",
    "tokens.families.nemotron": "processors.families.nemotron",
    "tokens.families.nemotron_nano_vl": "processors.families.nemotron_nano_vl",
    "tokens.families.nemotron_omni": "processors.families.nemotron_omni",
    "tokens.families.qwen3_vl": "processors.families.qwen3_vl",
    "tokens.families.qwen_vl": "processors.families.qwen_vl",
    "tokens.families.tiles": "processors.families.tiles",
    "tokens.findings": "alignment.findings",
    "tokens.hints": "processors.hints",
    "tokens.judge": "alignment.judge",
    "tokens.predict": "processors.prediction",
    "tokens.reconcile": "alignment.reconcile",
    "tokens.runs": "alignment.runs",
    "tokens.sampling": "processors.sampling",
    "tokens.settings": "processors.presets",
    "tokens.types": "processors.regions",
    "tracking.answer": "tasks.tracking.entries",
    "tracking.assignment": "tasks.tracking.assignment",
    "tracking.blind": "tasks.tracking.blind",
    "tracking.masks": "tasks.tracking.masks",
    "tracking.metrics": "tasks.tracking.metrics",
    "tracking.result": "tasks.tracking.track_result",
    "tracking.rows": "tasks.tracking.track_row",
    "tracking.schema": "tasks.tracking.schema",
    "tracking.scoring": "tasks.tracking.scoring",
    "turns.assign": "alignment.shares",
    "turns.chain": "alignment.chain",
    "turns.expect": "alignment.expectations",
    "turns.index": "alignment.turns",
    "turns.media_id": "alignment.media_id",
    "turns.rollout": "alignment.rollout_items",
    "turns.types": "alignment.occurrences",
}


class MovedFinder:
    """A finder for ``sys.meta_path`` that knows the old names; also the loader of what it finds."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for an old name of this package; None for everything else."""
        old = fullname.removeprefix(_PACKAGE)
        if old == fullname or (old not in MODULES and old not in PACKAGES):
            return None
        return ModuleSpec(fullname, self, is_package=old in PACKAGES)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Python's own empty module; it is replaced or filled by ``exec_module``."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Warn, and put the new module in the old one's place.

        An old package stays a module of its own, with no folder: searched in the new package's folder, its
        modules would be found and executed a second time, and their classes would exist twice.
        """
        old = module.__name__.removeprefix(_PACKAGE)
        new = _PACKAGE + (PACKAGES.get(old) or MODULES[old])
        warnings.warn(
            f"{module.__name__} is now {new}; the old name goes in version {REMOVED_IN}",
            DeprecationWarning,
            stacklevel=2,
        )
        if old not in PACKAGES:
            sys.modules[module.__name__] = importlib.import_module(new)
            return

        def forward(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return getattr(importlib.import_module(new), name)

        vars(module)["__getattr__"] = forward


def install() -> None:
    """Put the finder before all others, once."""
    if not any(isinstance(finder, MovedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedFinder())
