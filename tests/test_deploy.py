"""The examples in `deploy/` name options, variables, ports and addresses that this version has."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ibidem.cli.proxy.command import proxy
from ibidem.providers.routes import SESSION_HEADERS
from ibidem.proxy.page.dashboard import format_metrics
from ibidem.proxy.settings import Settings
from tests.support.proxied import growing, talk

yaml = pytest.importorskip("yaml")

DEPLOY = Path(__file__).parent.parent / "deploy"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes" / "ibidem.yaml"
UNITS = sorted(DEPLOY.rglob("*.service"))
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.name != "README.md")
OPTIONS = {name for each in proxy.params for name in (*each.opts, *each.secondary_opts)}
VARIABLES = {f"IBIDEM_{name.upper()}" for name in Settings.__struct_fields__} | {"IBIDEM_CONFIG"}
DASHBOARD = DEPLOY / "grafana" / "ibidem.json"
PORT, HEALTH = 8123, "/ibidem/health"


def kinds() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(KUBERNETES.read_text())}


def container() -> Any:
    [found] = kinds()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return found


def service(name: str = "ibidem") -> Any:
    return yaml.safe_load(COMPOSE.read_text())["services"][name]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_variables_and_addresses_are_ours(path: Path) -> None:
    text = path.read_text()
    for name in re.findall(r"\bIBIDEM_[A-Z_]+", text):
        assert name in VARIABLES or name.startswith("IBIDEM_UPSTREAM_"), name
    assert {*re.findall(r"/ibidem/health\w*", text)} <= {HEALTH}
    assert {*re.findall(r"IBIDEM_PORT\W+(\d+)", text)} <= {str(PORT)}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.parent.name)
def test_a_unit_starts_the_proxy(path: Path) -> None:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(path)
    program, command, *words = shlex.split(parser["Service"]["ExecStart"])
    assert (Path(program).name, command) == ("ibidem", "proxy")
    assert {word for word in words if word.startswith("--")} <= OPTIONS
    if "EnvironmentFile" in parser["Service"]:
        assert (path.parent / Path(parser["Service"]["EnvironmentFile"]).name).exists()


def test_the_containers_start_the_proxy_where_it_is_looked_for() -> None:
    for words in (service()["command"], container()["args"]):
        assert words[0] == "proxy"
        assert {*words[1:]} <= OPTIONS
    assert service("nginx")["ports"] == [f"127.0.0.1:{PORT}:8080"]
    assert service()["environment"]["IBIDEM_STORE"].startswith("redis://redis:")
    assert f"http://127.0.0.1:{PORT}{HEALTH}" in service()["healthcheck"]["test"][-1]
    [port] = container()["ports"]
    assert port["containerPort"] == PORT == int(kinds()["ConfigMap"]["data"]["IBIDEM_PORT"])
    for probe in ("readinessProbe", "startupProbe"):
        assert f"http://127.0.0.1:{PORT}{HEALTH}" in container()[probe]["exec"]["command"][-1]
    dockerfile = (DEPLOY / "compose" / "Dockerfile").read_text()
    assert f"EXPOSE {PORT}" in dockerfile
    assert (COMPOSE.parent / service()["build"]["context"] / service()["build"]["dockerfile"]).exists()


def test_nginx_of_compose_routes_to_all_replicas(tmp_path: Path) -> None:
    """Its command changes the addresses in the documented file, and nothing else."""
    [volume] = service("nginx")["volumes"]
    source, _, target = volume.removesuffix(":ro").rpartition(":")
    documented = COMPOSE.parent / source
    made = tmp_path / "default.conf"
    command = service("nginx")["command"][-1].partition("exec ")[0]
    command = command.replace(target, str(documented)).replace("/etc/nginx/conf.d/default.conf", str(made))
    subprocess.run(["sh", "-c", command], check=True)
    before, after = documented.read_text().splitlines(), made.read_text().splitlines()
    assert [line.strip() for line in after if line not in before] == [f"server ibidem:{PORT};", "listen 8080;"]
    assert [line for line in after if "127.0.0.1" in line] == []
    assert service()["deploy"]["replicas"] > 1


def test_what_kubernetes_selects_is_there() -> None:
    found = kinds()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == container()["ports"][0]["name"]
    pod = found["Deployment"]["spec"]["template"]["spec"]
    wait = int(container()["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert pod["terminationGracePeriodSeconds"] > wait
    assert {each["name"] for each in container()["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


def test_nginx_reads_the_session_headers_that_the_proxy_reads() -> None:
    """A header with an underscore and one with a hyphen are one variable of nginx."""
    text = (DEPLOY / "nginx" / "ibidem.conf").read_text()
    variables = {f"http_{name.replace('-', '_')}" for name in SESSION_HEADERS}
    [source] = re.findall(r'map "(.*)" \$ibidem_conversation', text)
    [key] = re.findall(r'^ *default "(.*)";', text, re.MULTILINE)
    assert source == key
    assert {*key.split("$")} - {""} == variables
    assert "underscores_in_headers on;" in text


# --- the dashboard --------------------------------------------------------------------------------


def panels() -> list[Any]:
    return [each for each in json.loads(DASHBOARD.read_text())["panels"] if each["type"] != "row"]


def expressions(panel: Any) -> list[str]:
    return [each["expr"] for each in panel["targets"]]


def test_the_dashboard_asks_for_what_a_proxy_tells() -> None:
    """Each metric, and each label of it."""
    with talk() as found:
        for body in growing("anthropic", 6, marks=True):
            found.send("anthropic", body)
        found.send("anthropic", b"{")
        state = found.settled(8)
    families = [*text_string_to_metric_families(format_metrics(state))]
    labels = {sample.name: {*sample.labels} for family in families for sample in family.samples}
    named = {family.name + "_total" * (family.type == "counter") for family in families} | {*labels}
    took = {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}
    assert took["ibidem_rewrite_duration_seconds_count"] == 8
    assert took["ibidem_rewrite_duration_seconds_sum"] > 0
    for panel in panels():
        for expression in expressions(panel):
            asked = {*re.findall(r"ibidem_\w+", expression)}
            assert asked <= named, panel["title"]
            used = {*re.findall(r"by \((\w+)\)|[{,] ?(\w+)!?=", expression)}
            known = {"instance"}.union(*(labels.get(name, set()) for name in asked))
            if asked <= {*labels}:
                assert {one or other for one, other in used} <= known, panel["title"]


def test_the_dashboard_is_put_together_as_grafana_wants_it() -> None:
    whole = json.loads(DASHBOARD.read_text())
    every = whole["panels"]
    assert len({each["id"] for each in every}) == len({each["title"] for each in every}) == len(every)
    cells: set[tuple[int, int]] = set()
    for each in every:
        place = each["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in own) < 24
        assert not own & cells, each["title"]
        cells |= own
    variables = {each["name"] for each in whole["templating"]["list"]}
    assert {*re.findall(r"\$\{?(?!__)(\w+)", DASHBOARD.read_text())} == variables == {"datasource", "instance"}
    for panel in panels():
        assert panel["description"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({each["refId"] for each in panel["targets"]}) == len(panel["targets"])
        assert all('instance=~"$instance"' in each for each in expressions(panel))
