"""`reactant gateway`: where a gateway sends what, and how to change that while it runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, final

import typer

from reactant_cli.failure import USAGE, CommandFailure, one_line_failures
from reactant_cli.gateway_control import connect_gateway
from reactant_cli.gateway_shown import PACKED, replicas_text, show_report, show_status
from reactant_cli.options import AsJson, Timeout, Url, show, show_json
from reactant_cli.plain import plain
from reactant_cli.policy_settings import policy_request, replicas
from reactant_cli.shown import shown
from reactant_cli.suggest import listed
from reactant_proto import gateway_pb2

All = Annotated[bool, typer.Option("--all", "-a", help="Every model and every move, not the first only.")]

_ALWAYS = {"mode", "work_basis"}
"""Settings that have an effect in other modes too."""

gateway = typer.Typer(
    name="gateway",
    help="Looks at how a gateway spreads models over its workers, and retunes it while it runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@final
class FillMode(StrEnum):
    """How requests fill the replicas of a model."""

    RUN = "run"
    SPREAD = "spread"
    INFLIGHT = "inflight"


@gateway.command("status")
@one_line_failures
def status(
    *, every: All = False, url: Url = "localhost:8001", timeout: Timeout = 10.0, as_json: AsJson = False
) -> None:
    """Shows which models are on which workers, what each has to do, and why the last repack moved what."""
    with connect_gateway(url, timeout) as control:
        answer = control.status()
    if as_json:
        show_json(plain(answer))
    else:
        show_status(answer, url, every=every)


@gateway.command("set-policy")
@one_line_failures
def set_policy(
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE...",
            help="Keys of `scheduling` in the gateway's configuration, such as hysteresis=0.2.",
        ),
    ],
    *,
    url: Url = "localhost:8001",
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Sets what holds for all models: all of the settings given, or none if one is not accepted."""
    request = policy_request(settings)
    with connect_gateway(url, timeout) as control:
        answer = control.set_policy(request)
    if as_json:
        show_json(plain(answer))
        return
    for key in request.update_mask.paths:
        value = plain(getattr(answer.policy, key))
        show(f"{key} = {str(value).lower() if isinstance(value, bool) else value}")
    show(_lasts(url, persisted=answer.persisted))
    if answer.policy.mode != PACKED and not set(request.update_mask.paths) <= _ALWAYS:
        show(_no_effect(answer.policy.mode))


@gateway.command("set-replicas")
@one_line_failures
def set_replicas(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    count: Annotated[
        str | None, typer.Argument(metavar="COUNT|all", help="On how many workers it is placed.")
    ] = None,
    *,
    fill_mode: Annotated[
        FillMode | None, typer.Option("--fill-mode", help="How its requests fill the replicas.")
    ] = None,
    fill_factor: Annotated[
        float | None,
        typer.Option("--fill-factor", help="Length of a run, in parts of the model's largest batch."),
    ] = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Also for a model that no worker has yet.")
    ] = False,
    url: Url = "localhost:8001",
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Sets on how many workers MODEL is placed, how its requests fill these, or both."""
    request = gateway_pb2.SetModelPlacementRequest(model=model, allow_unknown=allow_unknown)
    if count is not None:
        try:
            request.replicas.CopyFrom(replicas(count))
        except ValueError as error:
            raise CommandFailure(
                f"{shown(count)} is no number of replicas; accepted is {error}", USAGE
            ) from None
    if fill_mode is not None:
        request.fill_mode = fill_mode.value
    if fill_factor is not None:
        request.fill_factor = fill_factor
    if count is None and fill_mode is None and fill_factor is None:
        raise CommandFailure("nothing to set: give a count, --fill-mode or --fill-factor", USAGE)
    with connect_gateway(url, timeout) as control:
        answer = control.set_placement(request)
    if as_json:
        show_json(plain(answer))
        return
    placement = answer.placement
    where = f", on {listed(placement.homes) or 'no worker yet'}" if answer.mode == PACKED else ""
    show(
        f"{shown(model)}: replicas {replicas_text(placement.replicas)}, fill {placement.fill_mode} "
        f"{placement.fill_quantum:g}{where}"
    )
    show(_lasts(url, persisted=answer.persisted))
    if answer.mode != PACKED:
        show(_no_effect(answer.mode))


@gateway.command("repack")
@one_line_failures
def repack(
    *,
    wait: Annotated[
        float, typer.Option("--wait", min=0, max=600, help="Longest wait for it to be done, seconds.")
    ] = 30.0,
    every: All = False,
    url: Url = "localhost:8001",
    timeout: Timeout = 10.0,
    as_json: AsJson = False,
) -> None:
    """Packs the models onto the workers anew, by what is known of their load now."""
    with connect_gateway(url, timeout) as control:
        answer = control.repack(wait)
    if as_json:
        show_json(plain(answer))
    elif answer.done:
        show_report(answer.report, every=every)
    elif wait:
        raise CommandFailure(f"not done within {wait:g} s; it goes on, `reactant gateway status` shows it")
    else:
        show("asked for; `reactant gateway status` shows what comes of it")


def _lasts(url: str, *, persisted: bool) -> str:
    if persisted:
        return f"in force at {url}, and kept by the registry"
    return f"in force at {url} until that gateway ends; to keep it, put it into the gateway's configuration"


def _no_effect(mode: str) -> str:
    return f"without effect while the mode is {mode}: it is for {PACKED}"
