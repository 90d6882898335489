# SPDX-License-Identifier: Apache-2.0
"""Gym agent server for rows with video and images. Decides nothing: see ``nemo_gym_video.servers.agent``."""

from typing import Annotated, Any

from fastapi import Body, Depends, Request, Response
from nemo_gym.base_resources_server import AggregateMetrics, AggregateMetricsRequest
from nemo_gym.base_responses_api_agent import SimpleResponsesAPIAgent
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
from pydantic import PrivateAttr

from nemo_gym_video.servers.agent import Rollouts, read_json_body
from nemo_gym_video.servers.agent_config import VideoAgentConfig
from nemo_gym_video.servers.http_answers import json_answer, proxied_aggregate_metrics

RawBody = Annotated[dict[str, Any], Depends(read_json_body)]


class VideoAgent(SimpleResponsesAPIAgent):  # type: ignore[misc]
    """Rolls out rows whose messages carry video, tagged frames or stills."""

    ray_enabled = False
    config: VideoAgentConfig
    _rollouts: Rollouts = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Check the media configuration when the server starts."""
        super().model_post_init(context)
        self._rollouts = Rollouts(self.config, self.server_client)

    async def responses(self, request: Request, body: RawBody) -> Response:
        """One model call with the media resolved."""
        path = self.url_path_for_request("/v1/responses", request)
        return json_answer(await self._rollouts.respond(body, model_path=path))

    async def run(self, request: Request, body: RawBody) -> Response:
        """One rollout of one raw row."""
        path = self.url_path_for_run("/v1/responses", body)
        return json_answer(await self._rollouts.run(body, cookies=request.cookies, model_path=path))

    async def aggregate_metrics(self, body: Annotated[AggregateMetricsRequest, Body()]) -> AggregateMetrics:
        """The verifier server's metrics."""
        if self.config.skip_verification:
            return await super().aggregate_metrics(body)
        return await proxied_aggregate_metrics(self.server_client, self.config.resources_server.name, body)


if __name__ == "__main__":
    VideoAgent.run_webserver()
elif is_nemo_gym_fastapi_entrypoint(__file__):
    app = VideoAgent.run_webserver()
