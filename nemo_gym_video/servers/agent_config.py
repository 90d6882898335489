# SPDX-License-Identifier: Apache-2.0
"""Configuration of the video agent."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Literal

from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.global_config import NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME, get_global_config_dict
from pydantic import BaseModel, ConfigDict, Field

from nemo_gym_video.errors import ServerStartError
from nemo_gym_video.media.policy import MediaLimits, SourcePolicy
from nemo_gym_video.servers.gym_root import environment_folder
from nemo_gym_video.servers.variables import MEDIA_ROOTS_VARIABLE, MEDIA_STORE_VARIABLE


class MediaLimitSettings(BaseModel):
    """Upper bounds on what is opened; unset means the package's default."""

    model_config = ConfigDict(extra="forbid")

    max_bytes: int | None = Field(default=None, gt=0)
    max_image_bytes: int | None = Field(default=None, gt=0)
    max_data_bytes: int | None = Field(default=None, gt=0)
    max_pixels: int | None = Field(default=None, gt=0)
    max_frames: int | None = Field(default=None, gt=0)
    max_duration_s: float | None = Field(default=None, gt=0)


class VideoSamplingConfig(BaseModel):
    """How the engine samples a native video; conventions are those of ``gym-video sample``."""

    model_config = ConfigDict(extra="forbid")

    convention: str = "vllm"
    num_frames: int | None = Field(default=None, gt=0)
    target_fps: float | None = Field(default=None, gt=0)


class MediaSettings(BaseModel):
    """Where a server reads media, and where it keeps what it makes."""

    environment: str | None = Field(
        default=None,
        description="The environment that the server belongs to: NAME for environments/NAME/. Relative paths "
        "of the server's block are taken from that folder.",
    )
    media_roots: list[str] = Field(
        default_factory=list,
        description="Folders that media may be read from; a relative one is taken from the environment's folder. "
        f"The environment variable {MEDIA_ROOTS_VARIABLE} adds more.",
    )
    media_limits: MediaLimitSettings = Field(default_factory=MediaLimitSettings)
    media_store: str | None = Field(
        default=None,
        description="Folder for media that came as data URLs or that an environment makes, each kept once by its "
        "content. The engine must be allowed to read it. Default: the environment variable "
        f"{MEDIA_STORE_VARIABLE}, else a folder of this user's among the temporary ones.",
    )

    allow_hosts: list[str] = Field(
        default_factory=list,
        description="Hosts that media may be fetched from, over https only, as name or name:port. Empty: the "
        "network is off. What is fetched is kept in the media store.",
    )

    def folder(self) -> Path | None:
        """The environment's folder; None for a server that names no environment."""
        if self.environment is None:
            return None
        return environment_folder(self.environment, config_paths=_config_paths())

    def resolve(self, path: str) -> Path:
        """``path`` as an absolute one; a relative one is taken from the environment's folder.

        Raises:
            ServerStartError: it is relative and the server names no environment, or one that is not there.
        """
        if Path(path).is_absolute():
            return Path(path)
        folder = self.folder()
        if folder is None:
            raise ServerStartError(
                "a relative path needs the environment that it belongs to",
                got=path,
                allowed="an absolute path, or environment: NAME in the server's block",
            )
        return folder / path

    def store(self) -> Path:
        """The media store as an absolute folder."""
        named = self.media_store or os.environ.get(MEDIA_STORE_VARIABLE)
        user_folder = Path(tempfile.gettempdir()) / f"nemo-gym-video-{os.getuid()}" / "media"
        return self.resolve(named) if named else user_folder

    def roots(self) -> tuple[Path, ...]:
        """The media roots as absolute folders; the last is the store, which is made when it is not there."""
        named = [*self.media_roots, *os.environ.get(MEDIA_ROOTS_VARIABLE, "").split(os.pathsep)]
        store = self.store()
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        return (*(self.resolve(name) for name in named if name), store)

    def source_policy(self) -> SourcePolicy:
        """What the server's source policy allows."""
        limits = MediaLimits(**self.media_limits.model_dump(exclude_none=True))
        return SourcePolicy(roots=self.roots(), limits=limits, allow_hosts=tuple(self.allow_hosts))


def _config_paths() -> list[str]:
    """The configuration files that Gym merged, in a process that Gym started; none elsewhere."""
    if NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME not in os.environ:
        return []
    return [str(path) for path in get_global_config_dict().get("config_paths") or ()]


class VideoAgentConfig(MediaSettings, BaseResponsesAPIAgentConfig):  # type: ignore[misc]
    """What an instance of the video agent can be told."""

    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    tagged_frames: Literal["manifest", "images", "source_video"] = Field(
        default="manifest",
        description="How a run of tagged frames is sent: one input_video with a cached-frame manifest, one "
        "input_image a frame, or the source video itself.",
    )
    media_urls: Literal["file", "data"] = Field(
        default="file", description="Whether local media are sent as file URIs or as data URLs."
    )
    allow_mixed: bool = Field(
        default=False, description="Whether stills may stand beside tagged frames, or frames of several videos."
    )
    processor: str | None = Field(
        default=None,
        description="Name or folder of the model's processor. With it every row gets a contract of its media "
        "regions, and every answer's token ids are checked against it.",
    )
    processor_overrides: dict[str, Any] = Field(default_factory=dict)
    max_model_len: int | None = Field(default=None, gt=0, description="The engine's context length in tokens.")
    video_sampling: VideoSamplingConfig = Field(default_factory=VideoSamplingConfig)
    multi_turn: bool = Field(
        default=False, description="Whether the verifier server speaks /seed_session, /step and /close_session."
    )
    max_turns: int | None = Field(default=None, gt=0)
    answer_reserve: int = Field(
        default=256,
        ge=0,
        description="Tokens to keep free for the next answer when a request sets no max_output_tokens; an "
        "observation that would leave fewer of max_model_len is not sent.",
    )
    model_timeout_s: float = Field(default=3600, gt=0, description="Longest wait for one model call.")
    verifier_timeout_s: float = Field(default=600, gt=0, description="Longest wait for one verifier call.")
    media_threads: int = Field(default=8, gt=0, description="Threads that read and check media.")
