# SPDX-License-Identifier: Apache-2.0
"""Builds the contract of a raw row: opens its media through the source policy, measures, predicts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from nemo_gym_video.contract.digest import message_digest
from nemo_gym_video.contract.items import ContractItem
from nemo_gym_video.contract.row_contract import CONTRACT_FIELD, RowContract
from nemo_gym_video.contract.rules import (
    DEFAULT_PLACEHOLDERS,
    checked_groups,
    place_of,
    place_of_group,
    refuse_placeholders,
)
from nemo_gym_video.errors import ContractError, RowError, Where
from nemo_gym_video.messages import FrameManifest, MediaGroup, is_manifest_url, media_mode, short_url
from nemo_gym_video.processors.families.base import ProcessorSettings
from nemo_gym_video.processors.prediction import CallState
from nemo_gym_video.processors.sampling import default_convention, sample_frames

if TYPE_CHECKING:
    from nemo_gym_video.media.decoder import BoundedDecoder
    from nemo_gym_video.media.sources import MediaSources

TaggedAs = Literal["video", "images"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoSampling:
    """How the engine samples a native video; the names are those of ``sample_frames``.

    Without a convention it is the one that vLLM uses for the processor's family.
    """

    convention: str | None = None
    num_frames: int | None = None
    target_fps: float | None = None


def build_contract(
    row_input: str | Sequence[Any],
    *,
    sources: MediaSources,
    settings: ProcessorSettings | None = None,
    max_model_len: int | None = None,
    state: CallState | None = None,
    sampling: VideoSampling | None = None,
    tagged_as: TaggedAs = "video",
    allow_mixed: bool = False,
    allow_many_sources: bool = False,
    decoder: BoundedDecoder | None = None,
    where: Where | None = None,
) -> RowContract:
    """The contract of a raw row's ``input``. Opens and probes media, so keep it off an event loop.

    Args:
        row_input: ``responses_create_params.input`` as the row has it, frame tags included.
        sources: opens the media, under the source policy.
        settings: the processor; without one the contract has items but no regions.
        max_model_len: the engine's context length; wins over ``state.max_model_len``.
        state: further engine state that counts depend on.
        sampling: how the engine samples a native video (default: as vLLM does for the family).
        tagged_as: whether tagged frames are sent as one video or as single images.
        allow_mixed: see ``checked_groups``.
        allow_many_sources: see ``checked_groups``.
        decoder: probes media in a child process instead of this one.
        where: the row's place.

    Raises:
        RowError: the row breaks a rule (with message and part), or its media does not fit the context.
        MediaSourceError: the policy refuses a reference.
        MediaDecodeError: media is broken or over a limit.

    >>> from nemo_gym_video import MediaSources, SourcePolicy, build_contract
    >>> pixel = (
    ...     "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNg"
    ...     "YPhfDwAChAGAfP5WmQAAAABJRU5ErkJggg=="
    ... )
    >>> messages = [{"role": "user", "content": [{"type": "input_image", "image_url": pixel}]}]
    >>> contract = build_contract(messages, sources=MediaSources(SourcePolicy()))
    >>> contract.mode, contract.items[0].size
    ('images', (1, 1))
    """
    groups = checked_groups(
        row_input,
        placeholders=_placeholders(settings),
        allow_mixed=allow_mixed,
        allow_many_sources=allow_many_sources,
        where=where,
    )
    measure = _Measure(sources, sampling or VideoSampling(), settings, tagged_as, decoder)
    contract = RowContract(
        mode=media_mode(groups),
        items=tuple(measure.item(group, where) for group in groups),
        message_digest=message_digest(row_input, where=where),
    )
    if settings is None:
        return contract
    given = state or CallState()
    length = given.max_model_len if max_model_len is None else max_model_len
    known = CallState(
        max_model_len=length,
        text_tokens=given.text_tokens,
        processor_cache=given.processor_cache,
        pruning_rate=given.pruning_rate,
    )
    contract = contract.with_counts(settings, known)
    if length is not None and (contract.total or 0) > length:
        raise RowError(
            "the row's media does not fit the context",
            code="row.context",
            got=f"{contract.total} placeholder tokens",
            allowed=f"max_model_len {length}",
            where=where,
        )
    return contract


def contract_of_row(
    row: Mapping[str, Any],
    *,
    sources: MediaSources,
    settings: ProcessorSettings | None = None,
    max_model_len: int | None = None,
    where: Where | None = None,
    **options: Any,
) -> RowContract | None:
    """The contract a row carries, checked against its messages; else a new one when a processor is configured.

    A carried contract is kept; one without regions gets them when ``settings`` are given, and ``tagged_as``
    recounts frames that are sent in another form than the row was prepared for. A row without a contract and
    without a configured processor has none. ``options`` are those of ``build_contract``.

    Raises:
        ContractError: the carried contract is malformed, or belongs to other messages, or names another mode.
        RowError: as ``build_contract``.

    >>> from nemo_gym_video import MediaSources, SourcePolicy, contract_of_row
    >>> row = {"responses_create_params": {"input": "Hello"}}
    >>> contract_of_row(row, sources=MediaSources(SourcePolicy())) is None
    True
    """
    parameters = row.get("responses_create_params")
    if not isinstance(parameters, Mapping) or "input" not in parameters:
        raise RowError("row has no responses_create_params.input", code="row.no_input", where=where)
    row_input = parameters["input"]
    instructions = parameters.get("instructions")
    if isinstance(instructions, str):
        # They become the system message, so the same holds for them.
        refuse_placeholders(instructions, _placeholders(settings), _field(where, "instructions"))
    carried = row.get(CONTRACT_FIELD)
    if carried is None:
        if settings is None:
            return None
        options |= {"settings": settings, "max_model_len": max_model_len}
        return build_contract(row_input, sources=sources, where=where, **options)
    contract = RowContract.from_json(carried, where=where)
    contract.check_messages(row_input, where=where)
    _check_rules(row_input, contract, options, where)
    if "tagged_as" in options:
        contract = contract.sent_as("image" if options["tagged_as"] == "images" else "video")
    if contract.processor is None and settings is not None:
        return contract.with_counts(settings, CallState(max_model_len=max_model_len))
    return contract


def _check_rules(
    row_input: str | Sequence[Any], contract: RowContract, options: Mapping[str, Any], where: Where | None
) -> None:
    groups = checked_groups(
        row_input,
        placeholders=_placeholders(contract.settings),
        allow_mixed=bool(options.get("allow_mixed")),
        allow_many_sources=bool(options.get("allow_many_sources")),
        where=where,
    )
    mode = media_mode(groups)
    if mode != contract.mode or len(groups) != len(contract.items):
        raise ContractError("contract names another media mode than its row has", code="contract.mismatch",
                            got=f"{contract.mode}, {len(contract.items)} items",
                            allowed=f"{mode}, {len(groups)} items", where=where)  # fmt: skip


def _field(where: Where | None, name: str) -> Where:
    base = where or Where()
    return Where(file=base.file, line=base.line, row=base.row, field=name)


def _placeholders(settings: ProcessorSettings | None) -> Sequence[str]:
    return DEFAULT_PLACEHOLDERS if settings is None else settings.placeholder_strings or DEFAULT_PLACEHOLDERS


class _Measure:
    """Opens and probes the items of one row."""

    def __init__(
        self,
        sources: MediaSources,
        sampling: VideoSampling,
        settings: ProcessorSettings | None,
        tagged_as: TaggedAs,
        decoder: BoundedDecoder | None,
    ) -> None:
        # start-up: PyAV and numpy are loaded only by who opens media.
        from nemo_gym_video.media import image, video

        self.sources = sources
        self.limits = sources.policy.limits
        self.sampling = sampling
        self.convention = sampling.convention or default_convention(None if settings is None else settings.family)
        self.temporal_patch_size = None if settings is None else settings.temporal_patch_size
        self.tagged_as = tagged_as
        self.probe_image = image.probe_image if decoder is None else decoder.probe_image
        self.probe_video = video.probe_video if decoder is None else decoder.probe_video

    def item(self, group: MediaGroup, where: Where | None) -> ContractItem:
        place = place_of_group(where, group)
        if group.tagged:
            return self._tagged(group, where, place)
        if group.kind == "image":
            return self._still(group, place)
        if is_manifest_url(group.source):
            return self._manifest(group, place)
        return self._video(group, place)

    def _still(self, group: MediaGroup, place: Where) -> ContractItem:
        size, digest = self._image(group.source, place)
        return ContractItem(
            kind="image",
            counted_as="image",
            source=short_url(group.source),
            size=size,
            digest=digest,
            message=place.message,
            part=place.part,
            turn=0,
        )

    def _video(self, group: MediaGroup, place: Where) -> ContractItem:
        blob = self.sources.open(group.source, kind="video", where=place)
        info = self.probe_video(blob, limits=self.limits, where=place)
        # The file decides how many frames there are, not its header.
        sample = sample_frames(
            self.convention,
            total=info.decodable,
            fps=info.fps,
            num_frames=self.sampling.num_frames,
            target_fps=self.sampling.target_fps,
            temporal_patch_size=self.temporal_patch_size,
            where=place,
        )
        return ContractItem(
            kind="video",
            counted_as="video",
            source=short_url(group.source),
            size=info.size,
            digest=blob.digest,
            frames=len(sample.indices),
            frame_indices=sample.indices,
            total_frames=info.decodable,
            fps=info.fps,
            timestamps=tuple(float(info.timestamps[index]) for index in sample.indices),
            decoder=info.decoder,
            message=place.message,
            part=place.part,
            turn=0,
        )

    def _manifest(self, group: MediaGroup, place: Where) -> ContractItem:
        manifest = FrameManifest.from_url(group.source, where=place)
        size, digest = self._frames([(path, place) for path in manifest.frame_paths])
        count = len(manifest.frame_paths)
        indices = tuple(range(count))
        return ContractItem(
            kind="video",
            counted_as="video",
            source=manifest.frame_paths[0],
            size=size,
            digest=digest,
            frames=count,
            frame_indices=indices,
            total_frames=count,
            fps=manifest.fps,
            timestamps=tuple(index / manifest.fps for index in indices),
            decoder=manifest.video_backend,
            message=place.message,
            part=place.part,
            turn=0,
        )

    def _tagged(self, group: MediaGroup, where: Where | None, place: Where) -> ContractItem:
        size, digest = self._frames([(part.url, place_of(where, part.message, part.part)) for part in group.parts])
        given = tuple(part.frame_index for part in group.parts if part.frame_index is not None)
        return ContractItem(
            kind="video",
            counted_as="video" if self.tagged_as == "video" else "image",
            source=group.source,
            size=size,
            digest=digest,
            frames=len(group.parts),
            frame_indices=given or None,
            message=place.message,
            part=place.part,
            turn=0,
        )

    def _frames(self, frames: Sequence[tuple[str, Where]]) -> tuple[tuple[int, int], str]:
        """Size of all frames, which must agree, and the digest over their digests in order."""
        whole = hashlib.sha256()
        first: tuple[int, int] | None = None
        for url, place in frames:
            size, digest = self._image(url, place)
            first = first or size
            if size != first:
                raise RowError(
                    "frames of one video differ in size",
                    code="media.frame_sizes",
                    got=f"{size[0]}x{size[1]}",
                    allowed=f"{first[0]}x{first[1]}",
                    where=place,
                )
            whole.update(digest.encode("ascii"))
        assert first is not None  # a group and a manifest hold at least one frame
        return first, "sha256:" + whole.hexdigest()

    def _image(self, url: str, place: Where) -> tuple[tuple[int, int], str]:
        blob = self.sources.open(url, kind="image", where=place)
        return self.probe_image(blob, limits=self.limits, where=place).size, blob.digest
