# SPDX-License-Identifier: Apache-2.0
"""Small pieces that agent and verifier servers answer with."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Response
from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status


def json_answer(body: dict[str, Any]) -> Response:
    """``body`` as JSON, without a second validation of what may be megabytes of token ids."""
    return Response(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


async def proxied_aggregate_metrics(
    client: ServerClient, server: str, body: AggregateMetricsRequest
) -> AggregateMetrics:
    """Let the verifier server aggregate, as Gym's own agents do."""
    response = await client.post(server_name=server, url_path="/aggregate_metrics", json=body)
    await raise_for_status(response)
    return AggregateMetrics.model_validate(await get_response_json(response))
