# SPDX-License-Identifier: Apache-2.0
SHELL := bash
BIN := .venv/bin
.DEFAULT_GOAL := help
.PHONY: help bootstrap demo test lint typecheck unit servers slow bench fuzz lock

help:  ## List the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

bootstrap:  ## Make .venv ready (every target does this first)
	@scripts/bootstrap

demo: bootstrap  ## Roll out every environment on real media with the embedded baseline policy
	@$(BIN)/gym-video demo --output outputs/demo

test: lint typecheck unit servers  ## Everything CI runs: lint, types, tests, tests with real Gym servers

lint: bootstrap  ## ruff
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

typecheck: bootstrap  ## mypy, strict
	@$(BIN)/mypy nemo_gym_video tests benchmarks fuzz

unit: bootstrap  ## Tests that need no server, two at a time
	@$(BIN)/python -m pytest -n 2 -m "not servers and not slow"

servers: bootstrap  ## Tests with real Gym servers
	@$(BIN)/python -m pytest -m "servers and not slow"

slow: bootstrap  ## The long tests: 20 kills, 200 rollouts, big fuzz loops
	@$(BIN)/python -m pytest -m slow

bench: bootstrap  ## Ratios of docs/benchmarks.md, measured now
	@$(BIN)/python -m benchmarks $(ARGS)

fuzz: bootstrap  ## Coverage-guided fuzzing of everything that reads model text
	@$(BIN)/uv pip install --quiet --python $(BIN)/python atheris
	@$(BIN)/python -m fuzz $(ARGS)

lock: bootstrap  ## Resolve requirements.lock anew
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/lock
