"""The gateway's process: configuration, start, and the order of its end."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from reactant_core import logs
from reactant_core.config import ConfigError, Effective
from reactant_core.config.effective import DEFAULT
from reactant_core.config.gateway import GatewayConfig, load_gateway_config
from reactant_core.lifecycle import Stop, run
from reactant_core.net import BindError
from reactant_gateway.gateway import Gateway
from reactant_gateway.packing.startup import StartRefused
from reactant_gateway.settings import Reload, refused, without_effect
from reactant_gateway.sockets import asked_to_stay, hold_fd, listen

EX_OK: Final = 0
EX_FAILURE: Final = 1
EX_CONFIG: Final = 78
"""sysexits' EX_CONFIG: tells a supervisor that a restart cannot help."""

_HELD_SECONDS: Final = 30.0

_log = logs.get_logger(__name__)


async def serve(effective: Effective[GatewayConfig], stop: Stop) -> int:
    """Runs a gateway until `stop` is requested; returns the exit code."""
    config = effective.value
    try:
        hold = hold_fd(os.environ)
        listening = listen(config.listen.host, config.listen.port, config.listen.metrics_port, os.environ)
    except (BindError, ValueError) as error:
        _log.error("cannot start", reason=str(error))
        return EX_CONFIG
    gateway = Gateway(config, listening, embedded=hold is not None)
    try:
        await gateway.start(stop)
    except StartRefused as error:
        _log.error("cannot start", reason=str(error))
        await gateway.stop()
        return EX_CONFIG
    # What exists now stays: the collector need not walk it again while requests wait.
    gc.collect()
    gc.freeze()
    stop.on_reload = Reload(config, gateway.follow, gateway.refusals)
    failed = False
    try:
        await gateway.serve(stop)
    except Exception:
        _log.exception("the gateway cannot go on; ending to be started anew")
        failed = True
    await gateway.drain()
    # One that failed keeps clients waiting for the next.
    if hold is not None and not failed and asked_to_stay(hold):
        await _released(hold)
    await gateway.stop()
    return EX_FAILURE if failed else EX_OK


async def _released(fd: int) -> None:
    """Waits until whoever has the other end of the pipe closes it."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def readable() -> None:
        if not os.read(fd, 1):
            loop.remove_reader(fd)
            ended.set()

    loop.add_reader(fd, readable)
    try:
        async with asyncio.timeout(_HELD_SECONDS):
            await ended.wait()
    except TimeoutError:
        loop.remove_reader(fd)
        _log.warning("nobody ended the hold, stopping")


def main(argv: Sequence[str] | None = None) -> int:
    """Console entry point of `reactant-gateway`."""
    argparse.ArgumentParser(
        prog="reactant-gateway",
        description="One KServe V2 address in front of many workers. Configured by the file that "
        "REACTANT_GATEWAY_FILE names and by REACTANT_GATEWAY_* variables; `reactant config gateway` "
        "shows them all.",
    ).parse_args(argv)
    try:
        effective = load_gateway_config(os.environ)
    except ConfigError as error:
        for fault in error.faults:
            sys.stderr.write(f"reactant-gateway: {fault}\n")
        return EX_CONFIG
    logs.configure_logs(effective.value.logging.level)
    said = [f"{key} = {value} ({source})" for key, value, source in effective.entries() if source != DEFAULT]
    _log.info(f"configuration: {'; '.join(said) or 'all defaults'}")
    for note in effective.notes:
        _log.warning(note)
    refusals = refused(effective.value)
    for refusal in refusals:
        _log.error(refusal)
    if not refusals:
        for note in without_effect(effective):
            _log.warning(note)
    return EX_CONFIG if refusals else run(partial(serve, effective))
