"""What every test finds: a store in memory, signals that are not ignored, and a Redis server where one is installed.

On CI, generated examples are always the same, so that a merge does not depend on luck. Elsewhere they vary. The inner
loop (`pytest -m "not slow"`) generates fewer, `pytest --hypothesis-profile long` many more. Of a test with the mark
`sampled`, the inner loop runs some cases; the others are slow.
"""

import gc
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

os.environ["IBIDEM_STORE"] = "memory:"  # what tests evict is kept nowhere else
os.environ["IBIDEM_LEDGER"] = "0"  # and nor are their figures
# Compiling all tests takes each worker 10 s, and the hundreds of commands that tests start would compile anew. So
# bytecode is written, even if the environment asks for none.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

for name in ("SIGHUP", "SIGINT", "SIGQUIT"):
    number = getattr(signal, name, None)
    # `nohup` and `&` have them ignored, and what is ignored is inherited, also by commands that tests send them to. A
    # handler that does nothing ignores as well, and is not.
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


def pytest_collection_finish() -> None:
    """Exempt all loaded modules and collected tests from garbage collection: half a million objects."""
    gc.collect()
    gc.freeze()


settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("long", deadline=None, max_examples=1000)
settings.register_profile("quick", deadline=None, max_examples=15)
if os.environ.get("CI"):
    settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    if _is_inner_loop(config):
        settings.load_profile("quick")


def _is_inner_loop(config: pytest.Config) -> bool:
    chosen = config.getoption("--hypothesis-profile", None)
    return config.option.markexpr == "not slow" and not chosen and not os.environ.get("CI")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for group in cases.values():
        mark = group[0].get_closest_marker("sampled")
        assert mark is not None
        step = max(1, -(-len(group) // mark.args[0]))
        for number, item in enumerate(group):
            if number % step:
                item.add_marker("slow")
    if _is_inner_loop(config):
        for test in {item.function for item in items if isinstance(item, pytest.Function)}:
            _generate_fewer(test)


FEWEST_EXAMPLES = 5


def _generate_fewer(test: Any) -> None:
    """Divide by three the number of examples that a test sets itself, which takes precedence over the profile's."""
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    if own is not None and own is not settings.default:
        fewer = min(own.max_examples, max(FEWEST_EXAMPLES, own.max_examples // 3))
        test._hypothesis_internal_use_settings = settings(own, max_examples=fewer)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Redis server that these tests have to themselves."""
    server, package = shutil.which("redis-server"), importlib.util.find_spec("redis")
    if server is None or package is None:
        pytest.skip("needs: apt-get install redis-server, and pip install redis")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = str(tmp_path_factory.mktemp("redis"))
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
    with subprocess.Popen([server, *options], stdout=subprocess.DEVNULL) as process:
        try:
            _wait_for(port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.kill()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the Redis server does not start"
            time.sleep(0.02)
