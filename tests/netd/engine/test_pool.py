"""The pool with real workers and real sing-box instances."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from egressd.model.errors import Failed
from egressd.netd.engine import launch
from egressd.netd.engine.document import Document
from egressd.netd.engine.pool import Pool
from egressd.netd.engine.slot import SERVICES, Running
from egressd.netd.system import processes
from egressd.netd.system.patience import WaitLimits
from egressd.planner.registry import ENGINE_PORTS
from tests.support.engine import (
    ACCOUNT,
    CRASHES,
    STACK_IS_FULL,
    accepts,
    descriptors,
    document,
    is_stopped,
    opened,
    service,
    target,
    unheard,
    worker_pids,
)
from tests.support.netns import Namespace, eventually, is_alive

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("inside")]


async def test_an_instance_listens_from_its_start_to_its_stop(run_dir: Path) -> None:
    async with opened(run_dir) as pool:
        instance = target("node:1")
        running = await pool.start(instance)
        assert running.port in ENGINE_PORTS
        assert running.digest == instance.digest
        assert pool.running() == {"node:1": running}
        assert await accepts(running.port)
        await pool.stop(running)
        assert pool.running() == {}
        assert not await accepts(running.port)
        await pool.stop(running)


async def test_a_successor_runs_beside_its_predecessor(run_dir: Path) -> None:
    async with opened(run_dir, 2) as pool:
        old = await pool.start(target("node:1"))
        new = await pool.start(target("node:1"))
        assert old.port != new.port
        assert pool.running() == {"node:1": new}
        assert pool.superseded() == [old]
        assert await accepts(old.port)
        await pool.stop(old)
        assert pool.superseded() == []
        assert await accepts(new.port)


async def test_stopping_a_successor_leaves_its_predecessor(run_dir: Path) -> None:
    async with opened(run_dir) as pool:
        old = await pool.start(target("node:1"))
        new = await pool.start(target("node:1"))
        await pool.stop(new)
        assert pool.running() == {"node:1": old}
        assert await accepts(old.port)


async def test_another_worker_starts_for_each_sixteen_instances(run_dir: Path) -> None:
    async with opened(run_dir, 3) as pool:
        assert [*pool.workers()] == [1], "before the first instance"
        few = [await pool.start(target(f"node:{n}")) for n in range(16)]
        assert worker_pids(run_dir) == [running.pid for running in few[:1]]
        assert len({running.pid for running in few}) == 1
        more = await pool.start(target("node:16"))
        assert more.worker == 2
        assert await accepts(more.port)
        many = [*few, more]
        many += await asyncio.gather(*(pool.start(target(f"node:{n}")) for n in range(17, 60)))
        assert len({running.port for running in many}) == 60
        counts = [sum(running.worker == slot for running in many) for slot in (1, 2, 3)]
        assert counts == [20, 20, 20]
        assert {running.pid for running in many} == {*worker_pids(run_dir)} == {*pool.pids()}


async def test_the_workers_of_a_known_number_of_instances_start_at_once(run_dir: Path) -> None:
    pool = Pool(run_dir, ACCOUNT, 4, on_lost=unheard, on_trouble=unheard, mapped=tuple)
    await pool.open(33)
    assert [*pool.workers()] == [1, 2, 3]
    await pool.close()


async def test_a_connection_continues_while_another_worker_starts_and_ends(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.engine.workers._IDLE_S", 0.05)
    inbound = {"type": "http", "listen": "127.0.0.1", "listen_port": 9000}
    config = document({"type": "direct"}, inbounds=[inbound])

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async with opened(run_dir, 2) as pool, await asyncio.start_server(echo, "127.0.0.1", 9001):
        first = await pool.start(Document(key="node:0", config=config))
        reader, writer = await asyncio.open_connection("127.0.0.1", 9000)
        writer.write(b"CONNECT 127.0.0.1:9001 HTTP/1.1\r\nHost: 127.0.0.1:9001\r\n\r\n")
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")

        async def passes(data: bytes) -> bool:
            writer.write(data)
            async with asyncio.timeout(5):
                return await reader.readexactly(len(data)) == data

        assert await passes(b"alone")
        more = [await pool.start(target(f"node:{n}")) for n in range(1, 20)]
        assert {running.worker for running in more} == {1, 2}
        assert await passes(b"beside another worker")
        second = pool.workers()[2]
        for running in more:
            await pool.stop(running)
        await eventually(lambda: worker_pids(run_dir) == [first.pid])
        assert not is_alive(second)
        await eventually(lambda: not [*run_dir.glob("worker-2.*")])
        assert await passes(b"after its end")
        writer.close()
        # It is started again upon need, with what is asked meanwhile.
        again = await asyncio.gather(*(pool.start(target(f"node:{n}")) for n in range(1, 20)))
        assert all([await accepts(running.port) for running in again])
        assert len(worker_pids(run_dir)) == 2
        assert pool.running()["node:0"] == first


async def test_instances_that_start_as_a_worker_ends_are_served(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.engine.workers._IDLE_S", 0.01)
    async with opened(run_dir, 2) as pool:
        few = [await pool.start(target(f"node:{n}")) for n in range(16)]
        for turn in range(6):
            running = await pool.start(target("node:16"))
            assert await accepts(running.port)
            await pool.stop(running)
            if turn % 2:
                await eventually(lambda: len(pool.workers()) == 1)
        await eventually(lambda: worker_pids(run_dir) == [few[0].pid])
        assert {*pool.running()} == {running.key for running in few}


async def test_the_worker_of_proxy_services_ends_without_them(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.engine.workers._IDLE_S", 0.05)
    inbound = {"type": "socks", "listen": "127.0.0.1", "listen_port": 80}
    async with opened(run_dir, 2) as pool:
        for _ in range(2):
            running = await pool.start(service("service:1", inbound))
            assert await accepts(80)
            assert [*pool.workers()] == [SERVICES, 1]
            await pool.stop(running)
            await eventually(lambda: [*pool.workers()] == [1])
            await eventually(lambda: not [*run_dir.glob(f"worker-{SERVICES}.*")])


async def test_successors_of_all_instances_start_in_as_few_workers_as_suffice(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.engine.workers._IDLE_S", 0.05)
    async with opened(run_dir, 2) as pool:
        many = [await pool.start(target(f"node:{n}")) for n in range(20)]
        for running in many[2:16]:
            await pool.stop(running)
        kept = [*many[:2], *many[16:]]
        assert {running.worker for running in kept} == {1, 2}
        new = await asyncio.gather(*(pool.start(target(running.key)) for running in kept))
        assert {running.worker for running in new} == {2}
        for running in kept:
            await pool.stop(running)
        await eventually(lambda: [*pool.workers()] == [2])
        assert pool.running() == {running.key: running for running in new}


async def test_a_port_of_another_program_is_skipped(run_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", ENGINE_PORTS[0])):
        async with opened(run_dir) as pool:
            assert (await pool.start(target("node:1"))).port == ENGINE_PORTS[1]


async def test_a_service_listens_on_the_port_of_its_document(run_dir: Path) -> None:
    inbound = {"type": "socks", "listen": "127.0.0.1", "listen_port": 80}
    async with opened(run_dir) as pool:
        running = await pool.start(service("service:1", inbound))
        assert running.port == 80
        assert await accepts(80)
        with pytest.raises(Failed, match="address already in use"):
            await pool.start(service("service:2", inbound))
        assert list(pool.running()) == ["service:1"]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("[]", "start engine instance node:1: the configuration is not a sing-box document"),
        (document({"type": "nope"}), "unknown outbound type: nope"),
        (document({"type": "direct", "colour": "red"}), "does not know the field colour"),
        (document({"type": "direct"}, route={"final": "gone"}), "outbound not found: gone"),
    ],
)
async def test_a_refused_configuration_has_a_reason_and_leaves_nothing(
    run_dir: Path, config: str, why: str
) -> None:
    async with opened(run_dir) as pool:
        with pytest.raises(Failed, match=why):
            await pool.start(Document(key="node:1", config=config))
        assert pool.running() == {}
        assert (await pool.start(target("node:2"))).port == ENGINE_PORTS[0]


async def test_a_cancelled_start_leaves_nothing(run_dir: Path) -> None:
    async with opened(run_dir) as pool:
        (pid,) = pool.pids()
        await pool.stop(await pool.start(target("node:1")))
        before = descriptors(pid)
        for passes in range(20):  # of the event loop, before the call is given up
            starting = asyncio.ensure_future(pool.start(target("node:2")))
            for _ in range(passes):
                await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        for _ in range(2):  # and no instance comes later
            await eventually(lambda: not pool.running() and descriptors(pid) == before)
            await asyncio.sleep(0.2)


# --- Loss, replacement and adoption of workers. ----------------------------------------------


async def test_a_later_pool_adopts_running_instances(run_dir: Path) -> None:
    first = Pool(run_dir, ACCOUNT, 2, on_lost=unheard, on_trouble=unheard, mapped=tuple)
    await first.open()
    old = await first.start(target("node:1"))
    new = await first.start(target("node:1"))
    others = [await first.start(target(f"node:{n}")) for n in range(4, 22)]
    pids = first.pids()
    assert len(pids) == 2
    other = others.pop()
    assert other.worker == 2
    for running in others:
        await first.stop(running)
    first.release()
    async with opened(run_dir, 2) as pool:
        assert pool.pids() == pids
        assert pool.running() == {"node:1": new, "node:21": other}
        assert pool.superseded() == [old]
        fresh = await pool.start(target("node:3"))
        assert fresh.port not in {old.port, new.port, other.port}
        await pool.stop(new)
        assert not await accepts(new.port)
        assert await accepts(old.port)


def test_workers_survive_a_killed_netd(namespace: Namespace, run_dir: Path) -> None:
    async def die() -> None:
        pool = Pool(run_dir, ACCOUNT, 1, on_lost=unheard, on_trouble=unheard, mapped=tuple)
        await pool.open()
        await pool.start(target("node:1"))
        await pool.try_configs([target("node:1").config])
        assert len(worker_pids(run_dir)) == 2
        os.kill(os.getpid(), signal.SIGKILL)

    async def find() -> None:
        await eventually(lambda: len(worker_pids(run_dir)) == 1)
        async with opened(run_dir) as pool:
            assert await accepts(pool.running()["node:1"].port)

    with pytest.raises(RuntimeError, match="without an answer"):
        namespace.run_async(die)
    namespace.run_async(find)


async def test_closing_the_pool_ends_every_worker(run_dir: Path) -> None:
    async with opened(run_dir, 2) as pool:
        await asyncio.gather(*(pool.start(target(f"node:{n}")) for n in range(17)))
        await pool.try_configs(["{}"])
        assert len(worker_pids(run_dir)) == 3
    assert worker_pids(run_dir) == []


async def test_a_smaller_pool_drains_the_surplus_workers(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.engine.workers._IDLE_S", 0.05)
    first = Pool(run_dir, ACCOUNT, 2, on_lost=unheard, on_trouble=unheard, mapped=tuple)
    await first.open()
    runs = [await first.start(target(f"node:{n}")) for n in range(17)]
    first.release()
    async with opened(run_dir, 1) as pool:
        assert pool.running() == {running.key: running for running in runs}
        assert (await pool.start(target("node:17"))).worker == 1
        await pool.stop(next(running for running in runs if running.worker == 2))
        await eventually(lambda: len(worker_pids(run_dir)) == 1)
        assert pool.problems() == ()


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_lost_worker_is_reported_and_replaced(
    run_dir: Path, signal_number: signal.Signals
) -> None:
    lost: list[list[Running]] = []
    async with opened(run_dir, 2, lost.append) as pool:
        runs = [await pool.start(target(f"node:{n}")) for n in range(18)]
        victim, other = pool.pids()
        gone = [running for running in runs if running.pid == victim]
        os.kill(victim, signal_number)
        await eventually(lambda: bool(lost), timeout_s=5)
        assert lost == [gone]
        assert set(pool.running()) == {r.key for r in runs if r.pid == other}
        again = await asyncio.gather(*(pool.start(target(running.key)) for running in gone))
        assert all([await accepts(running.port) for running in again])
        await eventually(lambda: len(pool.pids()) == 2)
        assert pool.pids()[1] == other
        assert pool.problems() == ()
        assert {running.pid for running in again} == {pool.pids()[0]}


async def test_instances_of_a_lost_worker_start_on_its_successor(run_dir: Path) -> None:
    async with opened(run_dir, 2) as pool:
        runs = [await pool.start(target(f"node:{n}")) for n in range(20)]
        victim, other = pool.pids()
        gone = [running for running in runs if running.pid == victim]
        os.kill(victim, signal.SIGKILL)
        await eventually(lambda: len(pool.running()) == len(runs) - len(gone))
        again = await asyncio.gather(*(pool.start(target(each.key)) for each in gone))
        assert {running.worker for running in again} == {gone[0].worker}
        assert other not in {running.pid for running in again}


async def test_without_a_successor_instances_start_on_another_worker(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_process(*_: object, **__: object) -> int:
        raise OSError("there is no memory")

    async with opened(run_dir, 2) as pool:
        runs = [await pool.start(target(f"node:{n}")) for n in range(18)]
        victim, other = pool.pids()
        monkeypatch.setattr(launch, "spawn", no_process)
        os.kill(victim, signal.SIGKILL)
        await eventually(lambda: len(pool.running()) == 2)
        gone = next(running for running in runs if running.pid == victim)
        assert (await pool.start(target(gone.key))).pid == other


async def test_proxy_services_have_a_separate_worker(run_dir: Path) -> None:
    inbound = {"type": "socks", "listen": "127.0.0.1", "listen_port": 80}
    wanted = service("service:1", inbound)
    async with opened(run_dir, 2) as pool:
        clients = [await pool.start(target(f"node:{n}")) for n in range(4)]
        assert len(pool.pids()) == 1
        running = await pool.start(wanted)
        assert running.worker == SERVICES
        assert running.pid not in {each.pid for each in clients}
        assert len(pool.pids()) == 2
        # Even if it has the fewest, it takes none of the others.
        assert (await pool.start(target("node:9"))).worker != SERVICES
        pool.release()
    async with opened(run_dir, 2) as pool:
        assert pool.running()["service:1"] == running


async def test_a_worker_that_hangs_is_not_adopted(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = WaitLimits(silence_s=1.0, work_s=1.0)
    monkeypatch.setattr("egressd.netd.engine.process._ADOPT", patience)

    first = Pool(run_dir, ACCOUNT, 1, on_lost=unheard, on_trouble=unheard, mapped=tuple)
    await first.open()
    await first.start(target("node:1"))
    (pid,) = first.pids()
    first.release()
    os.kill(pid, signal.SIGSTOP)
    await eventually(lambda: is_stopped(pid))
    async with opened(run_dir) as pool:
        assert pool.pids() != [pid]
        assert pool.running() == {}
        await pool.start(target("node:1"))


async def test_a_worker_that_keeps_dying_is_replaced_with_growing_delays(run_dir: Path) -> None:
    async with opened(run_dir) as pool:
        waits = []
        for _ in range(4):
            (pid,) = pool.pids()
            killed = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            await eventually(lambda dead=pid: pool.pids() not in ([], [dead]), 30)  # type: ignore[misc]
            waits.append(time.monotonic() - killed)
        assert all(wait >= 0.1 * 2**n for n, wait in enumerate(waits)), waits


async def test_without_a_worker_a_start_fails_with_its_reason(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.engine.workers._WAIT_S", 0.5)

    # The worker itself refuses root's account.
    pool = Pool(run_dir, launch.Account(0, 0), 1, on_lost=unheard, on_trouble=unheard, mapped=tuple)
    await pool.open()
    assert "must not be root's" in pool.problems()[0]
    with pytest.raises(Failed, match="must not be root's"):
        await pool.start(target("node:1"))
    await pool.close()


# --- Configurations that crash the engine. -----------------------------------------------------


async def test_a_configuration_that_crashes_the_engine_is_quarantined(run_dir: Path) -> None:
    lost: list[list[Running]] = []
    async with opened(run_dir, 2, lost.append) as pool:
        bystanders = [await pool.start(target(f"node:{n}")) for n in range(17)]
        with pytest.raises(Failed, match=rf"crashes on its configuration .*{STACK_IS_FULL}"):
            await pool.start(target("node:99", **CRASHES))
        assert len(lost) == 1
        survivor = next(r for r in bystanders if r not in lost[0])
        pids = set(pool.pids())
        with pytest.raises(Failed, match="started again when that changes"):
            await pool.start(target("node:99", **CRASHES))
        assert pids <= set(pool.pids())
        assert await accepts(survivor.port)
        await pool.start(target("node:99"))


async def test_a_quarantined_configuration_is_tried_before_it_starts_again(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.engine.quarantine._TERM_S", 0.0)

    async with opened(run_dir) as pool:
        poison = target("node:7", **CRASHES)
        with pytest.raises(Failed, match="crashes on its configuration"):
            await pool.start(poison)
        await pool.start(target("node:1"))
        (worker,) = pool.pids()
        with pytest.raises(Failed, match="crashes on its configuration"):
            await pool.start(poison)
        assert pool.pids() == [worker]
        assert list(pool.running()) == ["node:1"]


async def test_a_worker_killed_from_outside_quarantines_no_configuration(run_dir: Path) -> None:
    async with opened(run_dir) as pool:
        (victim,) = pool.pids()
        os.kill(victim, signal.SIGSTOP)
        await eventually(lambda: is_stopped(victim))
        starting = asyncio.ensure_future(pool.start(target("node:1")))
        await asyncio.sleep(0.05)
        os.kill(victim, signal.SIGKILL)
        assert await accepts((await starting).port)


async def test_instances_starting_beside_a_crash_start_on_another_worker(run_dir: Path) -> None:
    async with opened(run_dir) as pool:
        instances = [target(f"node:{n}") for n in range(3)]
        results = await asyncio.gather(
            *(pool.start(i) for i in (instances[0], target("bad", **CRASHES), *instances[1:])),
            return_exceptions=True,
        )
        assert isinstance(results.pop(1), Failed)
        for running in results:
            # An instance that was up before the crash was lost with it, and reported as lost.
            assert isinstance(running, Running)
            assert running.key in pool.running() or running.pid not in pool.pids()


async def test_trials_return_reasons_in_order_and_affect_no_instance(run_dir: Path) -> None:
    inbound = {"type": "socks", "listen": "127.0.0.1", "listen_port": 1080}
    good = service("service:1", inbound)
    async with opened(run_dir) as pool:
        running = await pool.start(good)
        found = await pool.try_configs(
            [
                good.config,
                "nonsense",
                document({"type": "shadowsocks", "method": "rot13", "password": "x"}),
                document({"type": "direct"}, **CRASHES),
                target("node:1").config,
            ]
        )
        assert found[0] == found[4] == ""
        assert found[1].startswith("the configuration is not a sing-box document")
        assert found[2] == "unknown method: rot13"
        assert found[3].startswith("the engine crashes on it: ")
        assert re.search(STACK_IS_FULL, found[3])
        assert pool.running() == {"service:1": running}
        assert running.pid in pool.pids()


# --- Nothing leaks, nothing waits. -------------------------------------------------------------


async def test_five_hundred_cycles_leak_no_descriptors_or_threads(run_dir: Path) -> None:
    async with opened(run_dir) as pool:
        (pid,) = pool.pids()

        async def cycle(n: int) -> None:
            await pool.stop(await pool.start(target(f"node:{n}")))

        await asyncio.gather(*(cycle(n) for n in range(20)))
        before = descriptors(pid)
        for first in range(0, 500, 20):
            await asyncio.gather(*(cycle(n) for n in range(first, first + 20)))
        await eventually(lambda: descriptors(pid) <= before)
        assert len(list(Path(f"/proc/{pid}/task").iterdir())) < 40
        assert pool.pids() == [pid]


async def test_a_stop_does_not_wait_for_a_slow_batch(run_dir: Path) -> None:
    async with opened(run_dir) as pool:
        running = await pool.start(target("node:1"))
        batch = [asyncio.ensure_future(pool.start(target(f"node:{n}"))) for n in range(2, 150)]
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await pool.stop(running)
        assert time.monotonic() - began < 2
        assert not all(start.done() for start in batch)
        await asyncio.gather(*batch)


async def test_the_worker_log_is_readable_by_root_only(run_dir: Path) -> None:
    async with opened(run_dir):
        assert run_dir.stat().st_mode & 0o777 == 0o700
        files = [path for path in run_dir.iterdir() if not path.is_dir()]
        assert all(path.stat().st_mode & 0o077 == 0 for path in files)
        assert json.loads(target("node:1").config)["inbounds"][0]["listen_port"] == 0


async def test_ports_still_mapped_to_a_lost_instance_are_not_reused(run_dir: Path) -> None:
    """Past fault: a restarted instance could get the port of a lost one while the kernel still sent
    the lost one's clients there.
    """

    mapped: set[int] = set()
    for turn in range(3):
        async with opened(run_dir, mapped=lambda: mapped) as pool:
            mapped.add((await pool.start(target(f"node:{turn}"))).port)
            for pid in pool.pids():
                os.kill(pid, signal.SIGKILL)
            await eventually(lambda: not pool.running())
            mapped.add((await pool.start(target("node:9"))).port)
            assert len(mapped) == 2 * turn + 2


# --- Slow machines. -----------------------------------------------------------------------------


class SlowStarts:
    """Workers that compute and do nothing else until `release`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._released = folder / "released"
        spawn = processes.spawn

        def spawn_busy(argv: Sequence[str], *others: Any) -> int:
            busy = 'while [ ! -e "$0" ]; do :; done; exec "$@"'
            return spawn(["/bin/sh", "-c", busy, str(self._released), *argv], *others)

        monkeypatch.setattr(processes, "spawn", spawn_busy)

    def release(self) -> None:
        self._released.touch()


async def test_a_worker_that_starts_slowly_is_waited_for(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: a worker had 15 s to start, whether it made progress or hung."""
    patience = WaitLimits(silence_s=0.5, work_s=30.0)
    monkeypatch.setattr("egressd.netd.engine.process._START", patience)
    slow = SlowStarts(run_dir, monkeypatch)
    asyncio.get_running_loop().call_later(4 * patience.silence_s, slow.release)
    async with opened(run_dir) as pool:
        assert pool.problems() == ()
        assert await accepts((await pool.start(target("node:1"))).port)


async def test_a_worker_without_progress_is_given_up(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "egressd.netd.engine.process._START", WaitLimits(silence_s=0.5, work_s=30.0)
    )
    spawn, frozen = launch.spawn, list[int]()

    def spawn_frozen(path: Path, account: launch.Account, *, trial: bool) -> int:
        pid = spawn(path, account, trial=trial)
        os.kill(pid, signal.SIGSTOP)
        frozen.append(pid)
        return pid

    monkeypatch.setattr(launch, "spawn", spawn_frozen)
    pool = Pool(run_dir, ACCOUNT, 1, on_lost=unheard, on_trouble=unheard, mapped=tuple)
    await pool.open()
    assert "it was not ready after" in pool.problems()[0]
    assert not is_alive(frozen[0])
    await pool.close()


async def test_a_start_waits_for_a_worker_that_is_being_started(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.engine.slot._FIRST_S", 0.01)
    monkeypatch.setattr("egressd.netd.engine.workers._WAIT_S", 0.01)
    pool = Pool(run_dir, ACCOUNT, 1, on_lost=unheard, on_trouble=unheard, mapped=tuple)
    slow = SlowStarts(run_dir, monkeypatch)
    opening = asyncio.create_task(pool.open())
    await eventually((run_dir / "worker-1.log").exists)
    asyncio.get_running_loop().call_later(0.5, slow.release)
    started = await pool.start(target("node:1"))
    assert await accepts(started.port)
    await opening
    await pool.close()


async def test_an_instance_that_a_slow_worker_starts_is_waited_for(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patience is that with a worker that uses no processor time: while it does, the start is
    under way, or other starts are.
    """
    async with opened(run_dir) as pool:
        patience = WaitLimits(silence_s=0.3, work_s=20.0, longest_s=100.0)
        monkeypatch.setattr("egressd.netd.engine.pool._START", patience)
        begun = time.monotonic()
        starts = (pool.start(target(f"node:{n}")) for n in range(256))
        assert len(await asyncio.gather(*starts)) == 256
        assert time.monotonic() - begun > patience.silence_s


async def test_a_start_in_a_worker_without_progress_is_declined(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(run_dir) as pool:
        patience = WaitLimits(silence_s=0.2, work_s=20.0, longest_s=100.0)
        monkeypatch.setattr("egressd.netd.engine.pool._START", patience)
        (pid,) = pool.pids()
        os.kill(pid, signal.SIGSTOP)
        await eventually(lambda: is_stopped(pid))
        with pytest.raises(Failed, match="it did not start within 0 s"):
            await pool.start(target("node:1"))
