# SPDX-License-Identifier: Apache-2.0
"""The package's errors, each named after the boundary that failed and carrying a stable code.

Every message says what was wrong, what was got, what is allowed, and where, in one line, so that it can be
printed to a person, written as one JSON value, or grouped in a log by its code. Programs decide on the class or
the code, never on the words.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Self

_GOT_LIMIT = 200
_SHORT = reprlib.Repr(maxlevel=4, maxdict=8, maxlist=16, maxtuple=16, maxstring=200, maxlong=80, maxother=200)


class Code(NamedTuple):
    """One row of ``ERROR_CODES``: what the code means, and what to do about it (empty: the message says it)."""

    meaning: str
    remedy: str = ""


_VALIDATE = "`gym-video validate FILE` lists every problem of a file at once."
_ROOTS = "Move the file below a folder of `media_roots`, or add its folder there."
_LIMITS = "Use a smaller file, or raise the limit in `media_limits`."
_ENGINE = "Look at the engine's log; start it again if it has ended."

ERROR_CODES: Mapping[str, Code] = MappingProxyType({
    "package.error": Code("An error without a class of its own."),
    # Rows and requests
    "row.invalid": Code("A dataset row, or one line of a command's input, is malformed.", _VALIDATE),
    "row.json": Code("A line is not one JSON object.", "Write one JSON object a line (JSON Lines)."),
    "row.file": Code("An input file does not exist, or is a folder or device.", "Check the path."),
    "row.unknown_agent": Code("A row names no agent, or one that the run does not have.",
                              "Set `agent_ref.name` to one of the agents that the message lists."),
    "row.unknown_task": Code("A row's task is unknown.", "Use one of the tasks that the message lists."),
    "row.no_input": Code("A row lacks `responses_create_params.input`.",
                         "Give each row a string or a list of messages as its input."),
    "row.placeholder_text": Code("Text holds a literal media placeholder, which the model would take for media.",
                                 "Take the placeholder out of the text."),
    "row.context": Code("The row's media do not fit the context.",
                        "Sample fewer frames, or raise `max_model_len`."),
    # Tasks
    "task.import": Code("A task cannot be found or imported.",
                        "Name `module:Class`, a file `task.py:Class`, or a registered task."),
    "task.settings": Code("A task's settings are malformed.", "Use the settings that the task's class declares."),
    # Media: may it be opened?
    "media.source": Code("The source policy refuses a media reference.",
                         "Give a file below `media_roots`, or a base64 data URL."),
    "media.no_root": Code("No media root is configured, so no file may be opened.", "Set `media_roots`."),
    "media.outside_roots": Code("A path leads outside the media roots, directly or through a link.", _ROOTS),
    "media.missing": Code("A file that a reference names does not exist.", "Check the path and `media_roots`."),
    "media.unopenable": Code("A file cannot be opened: no permission, a name that is too long, a loop of links.",
                             "Check the file's name and permissions."),
    "media.not_a_file": Code("A path leads to a folder, device, FIFO or socket.", "Name a regular file."),
    "media.changed": Code("A file changed between its check and its use.", "Do not write to media during a run."),
    "media.reference": Code("A media reference is malformed (empty, `..`, a bad escape, another URL scheme).",
                            "Write a path, a `file:///` URL or a base64 data URL."),
    "media.data_url": Code("A data URL is malformed or declares another media type.",
                           "Write `data:image/png;base64,` and strict base64."),
    "media.fetch_refused": Code("A URL may not be fetched: the network is off, or its host is not allowed.",
                                "Add the host to `allow_hosts`, or download the file first."),
    "media.fetch_failed": Code("A URL that may be fetched could not be.",
                               "Try again, or download the file first."),
    # Media: can its content be used?
    "media.decode": Code("A file was opened but its content is broken or of a form that is not decoded.",
                         "Replace or re-encode the file."),
    "media.empty": Code("A file holds no bytes, or a picture without pixels.", "Replace the file."),
    "media.type": Code("The content is not an image or video format that is opened.",
                       "Re-encode it: PNG or JPEG for images, MP4, MKV or WebM for videos."),
    "media.codec": Code("The video codec is not one that is decoded.",
                        "Re-encode the video, for example to H.264."),
    "media.no_video_stream": Code("The container holds no video, only sound or pictures.", "Replace the file."),
    "media.no_frames": Code("The video holds no frame that can be decoded.", "Replace or re-encode the file."),
    "media.too_large": Code("Over a limit on bytes, pixels, frames, streams, memory or duration.", _LIMITS),
    "media.frame_sizes": Code("Frames of one video differ in size.", "Resize the frames to one size."),
    "media.frame_index": Code("A frame index or a time span lies outside the clip.",
                              "Stay within the range that the message names."),
    "media.decoder_timeout": Code("Decoding took longer than the decoder's time limit.",
                                  "Replace the file, or raise `timeout_s` of the decoder."),
    "media.decoder_failed": Code("The decoder's process crashed on this file.", "Replace or re-encode the file."),
    # Processors and contracts
    "processor.settings": Code("Processor settings are unknown, mistyped or out of range.",
                               "`gym-video count --family NAME` shows the settings in effect."),
    "processor.unknown": Code("The processor or its family is unknown.",
                              "Name a preset that the message lists, or a checkpoint folder with `family`."),
    "processor.checkpoint": Code("A checkpoint folder's processor files are missing, unreadable or contradictory.",
                                 "Copy the checkpoint's JSON files anew, or settle the setting with an override."),
    "processor.extra": Code("An optional dependency is not installed.", "pip install 'nemo-gym-video[hf]'"),
    "contract.invalid": Code("A row contract is malformed.", "Prepare the row again."),
    "contract.mismatch": Code("A contract does not belong to the messages it rides with.",
                              "Prepare the row again, or drop its contract."),
    "alignment.failed": Code("Token sequences and media cannot be brought together without a guess.",
                             "`gym-video index --check FILE` names what differs, call by call."),
    # Preparation
    "prepare.failed": Code("A dataset preparation cannot go on as configured."),
    "prepare.input": Code("One input cannot become a row; the report names the reason.",
                          "Mend or leave out the input that the message names."),
    "prepare.missing": Code("A file or folder that an option names does not exist.", "Check the option's path."),
    "prepare.output": Code("The output folder is taken, locked, cannot be written, or belongs to another job.",
                           "Name another folder, or use `--resume` with the settings the job was started with."),
    "prepare.extra": Code("Ray Data is not installed.", "pip install 'nemo-gym-video[ray]'"),
    # Starting a run
    "server.start": Code("Gym's servers or the embedded model could not be started.",
                         "Read the log file that the message names."),
    "server.timeout": Code("A server did not answer in time.",
                           "Read its log; a first start on a cold disk is slow."),
    "server.ended": Code("A server ended by itself.", "Read the log file that the message names."),
    "server.collection": Code("Gym's rollout collection failed.", "Read `logs/collection.log`."),
    "server.output": Code("The output folder cannot be made.", "Check the path and its permissions."),
    "environment.unknown": Code("The environment does not exist in any search folder.",
                                "Use a name that the message lists."),
    "environment.config": Code("An environment's configuration cannot be read.", "Mend the YAML file it names."),
    # The model's endpoint
    "engine.url": Code("The model URL is not the base URL of an OpenAI-style API.",
                       "Give the URL up to and with `/v1`, such as http://127.0.0.1:8000/v1."),
    "engine.auth": Code("The endpoint refuses the API key.", "Set POLICY_API_KEY to a key that it takes."),
    "engine.http": Code("The endpoint answered with an error status.", _ENGINE),
    "engine.unreachable": Code("No connection to the endpoint, or it broke.", _ENGINE),
    "engine.timeout": Code("The model did not answer in time.",
                           "Raise `model_timeout_s`, lower the concurrency, or ask for fewer tokens."),
    "engine.model": Code("The endpoint does not serve the model, or the model was not named.",
                         "Name with --model one of the models that the message lists."),
    "engine.row_refused": Code("The model server finds the request malformed (422).", _VALIDATE),
    "engine.refused": Code("The endpoint refused the request (a status of the 400s).",
                           "The message ends with the endpoint's own words."),
    "engine.failed": Code("The endpoint or Gym's model server failed (a status of the 500s).", _ENGINE),
    "engine.answer": Code("The model server's answer is not a response with an output list.", _ENGINE),
    "engine.prompt_too_long": Code("The prompt does not fit the engine's context.",
                                   "Show fewer frames, or raise the engine's max_model_len."),
    # Servers among themselves
    "http.failed": Code("A request to a server of the run failed.", "Read that server's log."),
    "http.timeout": Code("A server of the run did not answer in time.", "Read that server's log."),
    "http.unreachable": Code("A server of the run cannot be reached.", "Read that server's log."),
    "http.status": Code("A server of the run answered with an error status.", "Read that server's log."),
    "http.answer": Code("A server of the run did not answer with JSON.", "Read that server's log."),
    "verifier.failed": Code("The verifier server failed.", "Read the verifier's log."),
    "verifier.timeout": Code("The verifier did not answer in time.", "Read the verifier's log."),
    "verifier.unreachable": Code("The verifier cannot be reached.", "Read the verifier's log."),
    "verifier.row_refused": Code("The verifier finds the row malformed (422).", _VALIDATE),
    "verifier.session_lost": Code("The episode's session is gone: the verifier restarted or the session expired.",
                                  "Run the row again; look into the verifier's log."),
    "scoring.worker": Code("A scoring worker ended in the middle of a request.",
                           "Run the row again; look for a lack of memory."),
    "scoring.refused": Code("A request to score is malformed.", _VALIDATE),
    "request.invalid": Code("The embedded model cannot serve the HTTP request as asked."),
})  # fmt: skip
"""Every code: its meaning and remedy. Codes are stable: one is added or retired, never given another meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A place in the user's input. Every field is optional; ``str`` names those that are set.

    ``line`` counts from 1 as editors do; ``row``, ``message``, ``part``, ``turn`` and ``item`` count from 0 as
    the JSON they point into.

    >>> from nemo_gym_video import Where
    >>> str(Where(file="rows.jsonl", line=3, message=0, part=2))
    'rows.jsonl:3, message 0, part 2'
    """

    file: str | None = None
    line: int | None = None
    row: int | None = None
    message: int | None = None
    part: int | None = None
    turn: int | None = None
    item: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        """Render as ``rows.jsonl:3, message 0, part 2``."""
        words = [self.file if self.line is None else f"{self.file or 'line'}:{self.line}"]
        for name in ("row", "message", "part", "turn", "item"):
            value = getattr(self, name)
            if value is not None:
                words.append(f"{name} {value}")
        if self.field is not None:
            words.append(f"field {self.field!r}")
        return ", ".join(word for word in words if word)


def _shown(got: object) -> str:
    """``repr`` cut short, for any value: a long one costs no time, one too deep or too big to print is named."""
    try:
        shown = _SHORT.repr(got)
    except (ValueError, RecursionError):
        shown = f"<{type(got).__name__}>"
    return shown if len(shown) <= _GOT_LIMIT else shown[:_GOT_LIMIT] + "…"


class NemoGymVideoError(Exception):
    """Base of every error this package raises on purpose.

    ``code`` is a key of ``ERROR_CODES``: the class's own, unless the place that raises knows a more specific one.

    >>> from nemo_gym_video import NemoGymVideoError, load_settings
    >>> try:
    ...     load_settings("nemotron_omni", overrides={"max_patches": 1})
    ... except NemoGymVideoError as error:
    ...     type(error).__name__
    'ProcessorSettingsError'
    """

    code: str = "package.error"

    def __init_subclass__(cls, **more: Any) -> None:
        """Refuse a class whose code is not in the table."""
        super().__init_subclass__(**more)
        _known(cls.code)

    def __init__(
        self,
        problem: str,
        *,
        got: object = None,
        allowed: str | None = None,
        where: Where | str | None = None,
        code: str | None = None,
        remedy: str | None = None,
    ) -> None:
        """Build the one-line message from its parts; ``got`` is shortened to 200 characters.

        Raises:
            ValueError: ``code`` is not in ``ERROR_CODES``.
        """
        self.problem = problem
        self.got = got
        self.allowed = allowed
        self.where = where
        self.remedy = remedy
        if code is not None:
            self.code = _known(code)
        super().__init__(self._text())

    def at(self, where: Where | str | None) -> Self:
        """The same error, told of another place."""
        again = type(self).__new__(type(self))
        again.__dict__.update(self.__dict__)
        again.where = where
        Exception.__init__(again, again._text())
        return again

    def _text(self) -> str:
        text = self.problem
        if self.got is not None:
            text += f"; got {_shown(self.got)}"
        if self.allowed is not None:
            text += f"; allowed: {self.allowed}"
        if self.remedy is not None:
            text += f"; to fix: {self.remedy}"
        if self.where is not None and str(self.where):
            text = f"{self.where}: {text}"
        return " ".join(text.splitlines())


def _known(code: str) -> str:
    if code not in ERROR_CODES:
        raise ValueError(f"unknown error code {code!r}: add it to ERROR_CODES")
    return code


class RowError(NemoGymVideoError):
    """The dataset row is malformed; the data's fault, never the policy's.

    >>> from nemo_gym_video import RowError, Where
    >>> str(RowError("row has no messages", got=7, where=Where(line=3)))
    'line:3: row has no messages; got 7'
    """

    code = "row.invalid"


class MediaSourceError(NemoGymVideoError):
    """The source policy refuses to open this media reference.

    >>> from nemo_gym_video import MediaSourceError, MediaSources, SourcePolicy
    >>> try:
    ...     MediaSources(SourcePolicy()).open("/etc/hostname", kind="image")
    ... except MediaSourceError as error:
    ...     error.got
    '/etc/hostname'
    """

    code = "media.source"


class MediaDecodeError(NemoGymVideoError):
    """The media was opened but its content cannot be used (broken, empty, over a limit).

    >>> from nemo_gym_video import MediaDecodeError, MediaSources, SourcePolicy
    >>> try:
    ...     MediaSources(SourcePolicy()).open("data:image/png;base64,AAAA", kind="image")
    ... except MediaDecodeError as error:
    ...     isinstance(error, ValueError)
    False
    """

    code = "media.decode"


class ProcessorSettingsError(NemoGymVideoError):
    """Processor settings are unknown, mistyped or out of range."""

    code = "processor.settings"


class ContractError(NemoGymVideoError):
    """A row contract is malformed or does not belong to the messages it rides with."""

    code = "contract.invalid"


class AlignmentError(NemoGymVideoError):
    """Token sequences and media cannot be brought together without a guess."""

    code = "alignment.failed"


class PreparationError(NemoGymVideoError):
    """A dataset preparation job cannot go on as configured."""

    code = "prepare.failed"


class ServerStartError(NemoGymVideoError):
    """A Gym server could not be started; its last lines are in the message.

    ``lines`` of its log follow the message on lines of their own.
    """

    code = "server.start"

    def __init__(self, problem: str, *, lines: Sequence[str] = (), **context: Any) -> None:
        """``lines`` are shown as they are; the rest is as for every error of the package."""
        self.lines = tuple(lines)
        super().__init__(problem, **context)

    def _text(self) -> str:
        return super()._text() + "".join(f"\n    {line}" for line in self.lines)
