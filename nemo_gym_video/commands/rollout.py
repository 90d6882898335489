# SPDX-License-Identifier: Apache-2.0
"""``gym-video rollout``: environments and rows in, scored rollouts out, through Gym's own servers."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from nemo_gym_video.errors import RowError, ServerStartError

if TYPE_CHECKING:
    from nemo_gym_video.launch.collection import Endpoint, RunPlan
    from nemo_gym_video.launch.tail import Results

_SHOWN_PROBLEMS = 20


def rollout(
    environment: Annotated[list[str], typer.Option(help="Environment to run; repeatable.")],
    output: Annotated[Path, typer.Option(help="Folder for rollouts, metrics and logs.")],
    input: Annotated[
        Path | None, typer.Option(help="Rows to run; default: the environments' example rows.")
    ] = None,
    model: Annotated[str, typer.Option(help="Model name at --model-url, or 'baseline'.")] = "baseline",
    model_url: Annotated[str | None, typer.Option(help="Base URL of a vLLM endpoint, up to /v1.")] = None,
    processor: Annotated[
        str | None, typer.Option(help="Name or folder of the model's processor; counts are checked with it.")
    ] = None,
    search_dir: Annotated[
        list[Path] | None,
        typer.Option(exists=True, file_okay=False, help="Folder with environments/NAME/ in it; repeatable."),
    ] = None,
    num_repeats: Annotated[int, typer.Option(min=1, help="Rollouts a row.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Most rows to take from each input file.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Rollouts at a time.")] = 16,
    media_root: Annotated[
        list[Path] | None, typer.Option(help="Folder that --input's media may come from, besides its own.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(min=0, help="Sampling temperature.")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer in tokens.")] = None,
) -> None:
    """Roll out rows through Gym's servers and print one table of results."""
    request = {"temperature": temperature, "max_output_tokens": max_output_tokens}
    signal.signal(signal.SIGTERM, _on_terminate)
    plan = _plan(
        environment, input, output, endpoint=_endpoint(model, model_url), media_root=media_root or [], limit=limit,
        processor=processor, num_repeats=num_repeats, concurrency=concurrency,
        request={name: value for name, value in request.items() if value is not None}, search_dir=search_dir or [],
    )  # fmt: skip
    raise typer.Exit(_run(plan))


def run_rows(
    environments: list[str], rows: Path, output: Path, *, num_repeats: int = 1, concurrency: int = 16
) -> int:
    """Roll out a file of rows with the embedded baseline, as the command does; the exit code."""
    signal.signal(signal.SIGTERM, _on_terminate)
    plan = _plan(
        environments, rows, output, endpoint=None, media_root=[], limit=None, processor=None,
        num_repeats=num_repeats, concurrency=concurrency, request={},
    )  # fmt: skip
    return _run(plan)


def _on_terminate(*_: object) -> NoReturn:
    raise SystemExit(143)


def _endpoint(model: str, model_url: str | None) -> Endpoint | None:
    # start-up: only a run needs it.
    from nemo_gym_video.launch.collection import Endpoint, probe_endpoint

    if model_url is None:
        if model != "baseline":
            raise ServerStartError(
                "a model other than the baseline needs --model-url", code="engine.model", got=model
            )
        return None
    key = os.environ.get("POLICY_API_KEY", "EMPTY")
    served = probe_endpoint(model_url, api_key=key)
    if model == "baseline" and "baseline" not in served:
        if len(served) != 1:
            raise ServerStartError(
                "name the model with --model",
                code="engine.model",
                allowed=", ".join(served) or "the endpoint's models",
            )
        model = served[0]
    if served and model not in served:
        raise ServerStartError(
            "the endpoint does not serve this model", code="engine.model", got=model, allowed=", ".join(served)
        )
    return Endpoint(base_url=model_url.rstrip("/"), name=model, api_key=key)


def _plan(
    names: list[str], rows: Path | None, output: Path, *, endpoint: Endpoint | None, media_root: list[Path],
    limit: int | None, search_dir: Sequence[Path] = (), **settings: Any,
) -> RunPlan:  # fmt: skip
    # start-up: only a run needs it.
    from nemo_gym_video.launch.catalogue import load_environment
    from nemo_gym_video.launch.collection import RunPlan
    from nemo_gym_video.launch.inputs import read_inputs
    from nemo_gym_video.servers.gym_root import search_roots

    roots = search_roots(search_dir)
    environments = tuple(load_environment(name, roots) for name in dict.fromkeys(names))
    agents = {agent.name for one in environments for agent in one.agents}
    if rows is not None:
        files: list[tuple[str | None, Path]] = [(next(iter(agents)) if len(agents) == 1 else None, rows)]
        media_root = [rows.absolute().parent, *media_root]
    else:
        files = [example for one in environments for example in one.examples]
    inputs = read_inputs(files, sorted(agents), limit=limit)
    if not inputs.rows and not inputs.problems:
        raise RowError(
            "there are no rows to run", code="row.file", where=", ".join(str(file) for _, file in files)
        )
    _make_output(output)
    return RunPlan(environments=environments, inputs=inputs, output=output, endpoint=endpoint,
                media_roots=tuple(media_root), roots=roots, **settings)  # fmt: skip


def _make_output(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServerStartError(
            f"the output folder cannot be made ({error.strerror})", code="server.output", got=str(output)
        ) from error


def _run(plan: RunPlan) -> int:
    """Run the plan, print the table and the problems; the exit code."""
    # start-up: only a run needs it.
    from rich.console import Console

    # start-up: only a run needs it.
    from nemo_gym_video.launch.collection import collect, running, write_record

    console = Console(stderr=True)
    started = time.monotonic()
    seconds: dict[str, float] = {}
    results: Results | None = None
    error: str | None = None
    try:
        if plan.inputs.rows:
            with console.status("starting") as status, running(plan, status.update) as servers:
                seconds["start"] = round(time.monotonic() - started, 2)
                status.stop()
                with _progress(console, plan) as update:
                    results = collect(plan, servers, update)
    except KeyboardInterrupt:
        error = "interrupted"
    except ServerStartError as failure:
        error = f"{failure} [{failure.code}]"
    seconds["total"] = round(time.monotonic() - started, 2)
    write_record(plan, results, seconds=seconds, error=error)
    if results is not None:
        _print_table(plan, results)
    _print_problems(plan, results)
    if error is not None:
        print(f"gym-video: {error}", file=sys.stderr)
        return 130 if error == "interrupted" else 1
    return int(bool(plan.inputs.problems or (results and results.problems)))


class _progress:
    """A progress bar with an estimate, as a context that gives the function to call with results."""

    def __init__(self, console: Any, plan: RunPlan) -> None:
        # start-up: only a run needs it.
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("rollouts"), BarColumn(bar_width=24), MofNCompleteColumn(),
            TextColumn("mean reward {task.fields[mean]}"), TimeRemainingColumn(), console=console,
        )  # fmt: skip
        self._task = self._bar.add_task("rollouts", total=plan.rollouts, mean="-")

    def __enter__(self) -> Any:
        self._bar.start()
        return self._update

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _update(self, results: Results) -> None:
        rewards = [reward for tally in results.tallies.values() for reward in tally.rewards]
        mean = f"{sum(rewards) / len(rewards):.3f}" if rewards else "-"
        self._bar.update(self._task, completed=results.done, mean=mean)


def _print_table(plan: RunPlan, results: Results) -> None:
    # start-up: only a run needs it.
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("environment", no_wrap=True)
    for heading in ("rows", "rollouts", "mean reward", "best blind", "media tokens", "seconds"):
        table.add_column(heading, justify="right")
    for tally in results.tallies.values():
        table.add_row(
            tally.environment, str(tally.rows), str(tally.rollouts), _number(tally.mean_reward, 3),
            _number(_best_blind(plan, tally.environment), 3), _number(tally.mean_media_tokens, 0),
            f"{tally.seconds:.1f}",
        )  # fmt: skip
    Console().print(table)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _best_blind(plan: RunPlan, environment: str) -> float | None:
    """Mean reward of the best policy that does not look, by the environment's own tasks; None without one."""
    # start-up: tasks bring what they score with.
    from nemo_gym_video.tasks.blind_policies import BlindSum, blind_rewards_of
    from nemo_gym_video.tasks.registry import load_task

    total = BlindSum()
    for agent in (agent for one in plan.environments for agent in one.agents if agent.environment == environment):
        if agent.task is None:
            continue
        task = load_task(agent.task.reference, agent.task.settings)
        for item in (item for item in plan.inputs.rows if item.agent == agent.name):
            with contextlib.suppress(RowError):
                total.add(blind_rewards_of(task, task.read_row(item.row)))
    return max(total.means().values(), default=None)


def _print_problems(plan: RunPlan, results: Results | None) -> None:
    lines = [str(problem) for problem in plan.inputs.problems]
    for problem, count in (results.problems if results else {}).items():
        lines.append(str(problem) + (f" ({count} rollouts)" if count > 1 else ""))
    for line in lines[:_SHOWN_PROBLEMS]:
        print(line, file=sys.stderr)
    if len(lines) > _SHOWN_PROBLEMS:
        more = len(lines) - _SHOWN_PROBLEMS
        print(f"… and {more} more in {plan.output / 'failures.jsonl'}", file=sys.stderr)
