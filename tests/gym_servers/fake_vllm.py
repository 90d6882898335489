# SPDX-License-Identifier: Apache-2.0
"""A stand-in for vLLM that answers one fixed text, and misbehaves on request. Run as a script; prints {"port": N}.

An image becomes a run of id 18 of ``--tokens`` length, a video one such run for every two manifest frames (two
runs for a native one), between text tokens. ``--log FILE`` keeps every request body.
"""

from __future__ import annotations

import argparse
import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MEDIA = 18
LOCK = threading.Lock()


def runs_of(part: dict[str, Any]) -> int:
    if part["type"] == "image_url":
        return 1
    url = part["video_url"]["url"]
    if not url.startswith("data:video/x-nemo-rl-cached-frames;base64,"):
        return 2
    body = json.loads(base64.b64decode(url.partition(",")[2]).partition(b"\n")[2])
    return (len(body["frame_paths"]) + 1) // 2


def prompt_ids(messages: list[dict[str, Any]], tokens: int) -> list[int]:
    ids = [1]
    for message in messages:
        content = message.get("content") or ""
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if part["type"] == "text":
                ids += [100 + byte for byte in part["text"].encode()]
            else:
                for _ in range(runs_of(part)):
                    ids += [19, *[MEDIA] * tokens, 20]
        ids.append(2)
    return ids


class Handler(BaseHTTPRequestHandler):
    options: argparse.Namespace

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": "fake", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.options.log:
            with LOCK, open(self.options.log, "a") as log:
                log.write(json.dumps(body) + "\n")
        time.sleep(self.options.delay)
        if self.options.status != 200:
            self.answer({"error": {"message": "told to fail"}}, self.options.status)
            return
        ids = prompt_ids(body["messages"], self.options.tokens)
        if self.path.endswith("tokenize"):
            self.answer({"tokens": ids})
            return
        generated = [100 + byte for byte in self.options.answer.encode()] + [2]
        logprobs: list[dict[str, Any]] = [
            {"token": f"token_id:{one}", "logprob": -0.1, "bytes": None, "top_logprobs": []} for one in generated
        ]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": self.options.answer},
            "finish_reason": "stop",
            "logprobs": {"content": logprobs},
            "token_ids": generated,
        }
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(generated),
                 "total_tokens": len(ids) + len(generated)}  # fmt: skip
        self.answer({"id": f"chatcmpl-{time.time_ns()}", "object": "chat.completion", "created": 1,
                     "model": "fake", "choices": [choice], "usage": usage, "prompt_token_ids": ids})  # fmt: skip

    def answer(self, body: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--answer", default="The answer is \\boxed{B}.")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--status", type=int, default=200)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--log")
    Handler.options = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
