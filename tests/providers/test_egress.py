"""Which proxy stands between this machine and an upstream, as the environment says it; and who is believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibidem.errors import IbidemError
from ibidem.providers.egress import OutboundProxy, find_certificate_sources, find_outbound_proxy

UPSTREAM = "https://api.example.com"


def found(environment: dict[str, str], base: str = UPSTREAM) -> OutboundProxy | None:
    return find_outbound_proxy(base, environment, lambda _: {})


ADDRESSES = {
    "proxy.corp:3128": ("http", "proxy.corp", 3128, None, ""),
    "proxy.corp": ("http", "proxy.corp", 80, None, ""),
    "http://proxy.corp:3128": ("http", "proxy.corp", 3128, None, ""),
    "HTTP://PROXY.corp:3128/": ("http", "proxy.corp", 3128, None, ""),
    "https://proxy.corp": ("https", "proxy.corp", 443, None, ""),
    "socks5://proxy.corp": ("socks5", "proxy.corp", 1080, None, ""),
    "socks5h://10.0.0.1:9050": ("socks5h", "10.0.0.1", 9050, None, ""),
    "http://[fd00::1]:3128": ("http", "fd00::1", 3128, None, ""),
    "http://user:pa%3Ass@proxy.corp:1": ("http", "proxy.corp", 1, "user", "pa:ss"),
    "user:p%40ss@proxy.corp:1": ("http", "proxy.corp", 1, "user", "p@ss"),
    "http://user@proxy.corp:1": ("http", "proxy.corp", 1, "user", ""),
    " http://proxy.corp:3128 ": ("http", "proxy.corp", 3128, None, ""),
}


@pytest.mark.parametrize(("text", "expected"), ADDRESSES.items())
def test_an_address_of_a_proxy_is_read(text: str, expected: tuple[str, str, int, str | None, str]) -> None:
    assert found({"HTTPS_PROXY": text}) == OutboundProxy("HTTPS_PROXY", *expected)


@pytest.mark.parametrize(
    ("names", "base", "expected"),
    [
        (("HTTPS_PROXY",), UPSTREAM, "HTTPS_PROXY"),
        (("https_proxy",), UPSTREAM, "https_proxy"),
        (("Https_Proxy",), UPSTREAM, "Https_Proxy"),
        (("HTTPS_PROXY", "https_proxy"), UPSTREAM, "https_proxy"),
        (("ALL_PROXY",), UPSTREAM, "ALL_PROXY"),
        (("all_proxy", "HTTPS_PROXY"), UPSTREAM, "HTTPS_PROXY"),
        (("HTTP_PROXY",), UPSTREAM, None),
        (("HTTP_PROXY",), "http://api.example.com", "HTTP_PROXY"),
        (("hTTP_pROXY",), "http://api.example.com", "hTTP_pROXY"),
        (("HTTPS_PROXY",), "http://api.example.com", None),
        (("HTTPS_PROXY", "ALL_PROXY"), "http://api.example.com", "ALL_PROXY"),
        (("HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:8000", None),
        (("HTTPS_PROXY", "ALL_PROXY"), "https://localhost", None),
        ((), UPSTREAM, None),
    ],
)
def test_a_proxy_is_named_by_a_variable_in_any_letter_case(
    names: tuple[str, ...], base: str, expected: str | None
) -> None:
    where = found(dict.fromkeys(names, "http://proxy.corp:3128"), base)
    assert (where.variable if where else None) == expected


def test_an_empty_variable_is_not_set() -> None:
    assert found({"https_proxy": "", "HTTPS_PROXY": "a:1"}) == OutboundProxy("HTTPS_PROXY", "http", "a", 1)
    assert found({"https_proxy": " ", "ALL_PROXY": ""}) is None


WRONG = [
    "ftp://proxy.corp:21",
    "socks://proxy.corp",
    "socks4://proxy.corp",
    "http://proxy.corp:port",
    "http://proxy.corp:99999",
    "http://proxy.corp:0",
    "http://",
    "http://:3128",
    "://proxy.corp",
    "proxy corp:3128",
    "proxy.corp:3128:1",
    "http://user:s3cret@",
    "s3cret@x://proxy",
    "http://user:s3cret@[::1",
    "http://pro\nxy:1",
]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_proxy_is_an_error_that_names_the_variable_and_no_secret(text: str) -> None:
    with pytest.raises(IbidemError, match=r"^HTTPS_PROXY: [^\n]+. Use one like http://proxy.example:3128") as error:
        found({"HTTPS_PROXY": text, "ALL_PROXY": "http://other:1"})
    assert "s3cret" not in str(error.value)


def test_what_nobody_asks_for_is_not_read() -> None:
    assert found({"HTTP_PROXY": "ftp://nobody", "ALL_PROXY": "ftp://", "HTTPS_PROXY": "a:1"}) is not None
    assert found({"HTTPS_PROXY": "ftp://nobody", "NO_PROXY": "*"}) is None


def test_a_password_is_not_shown() -> None:
    where = found({"HTTPS_PROXY": "http://user:s3cret@proxy:1"})
    assert where is not None
    assert "s3cret" not in repr(where) + where.redacted_url
    assert "user" not in where.redacted_url


def test_the_system_is_asked_where_no_variable_is_set() -> None:
    def system(host: str) -> dict[str, str]:
        return {"https": "http://system:1"} if host == "api.example.com" else {}

    where = find_outbound_proxy(UPSTREAM, {}, system)
    assert where is not None
    assert (where.host, where.variable) == ("system", "the system's proxy")
    assert find_outbound_proxy("https://other.example.com", {}, system) is None
    assert find_outbound_proxy(UPSTREAM, {"HTTP_PROXY": "a:1"}, system) is None


EXCLUDED = [
    ("https://api.example.com", "api.example.com", True),
    ("https://api.example.com", "API.Example.COM", True),
    ("https://api.example.com.", "api.example.com", True),
    ("https://api.example.com", "example.com", True),
    ("https://api.example.com", ".example.com", True),
    ("https://api.example.com", "*.example.com", True),
    ("https://example.com", ".example.com", True),
    ("https://api.example.com", "*", True),
    ("https://api.example.com", "a, b ,*", True),
    ("https://api.example.com", "other.com api.example.com", True),
    ("https://api.example.com", "api.example.com:443", True),
    ("https://api.example.com:8443", "api.example.com:8443", True),
    ("https://api.example.com:8443", "api.example.com", True),
    ("https://api.example.com", "api.example.com:8443", False),
    ("https://api.example.com", ".example.com:443", True),
    ("https://api.example.com", "ample.com", False),
    ("https://api.example.com", "other.api.example.com", False),
    ("https://api.example.com", "*ample.com", False),
    ("https://api.example.com", ".", False),
    ("https://api.example.com", ",, ,", False),
    ("https://api.example.com", "10.0.0.0/8", False),
    ("https://10.1.2.3", "10.1.2.3", True),
    ("https://10.1.2.3", "10.1.2.3:443", True),
    ("https://10.1.2.3", "10.1.2.3:80", False),
    ("https://10.1.2.3", "10.0.0.0/8", True),
    ("https://11.1.2.3", "10.0.0.0/8", False),
    ("https://10.1.2.3", "1.2.3", False),
    ("https://10.1.2.3", "2.3", False),
    ("https://[fd00::1]", "fd00::/8", True),
    ("https://[fd00::1]", "[fd00::1]:443", True),
    ("https://[fd00::1]", "fd00::1", True),
    ("https://[fd00::1]", "10.0.0.0/8", False),
    ("https://10.1.2.3", "fd00::/8", False),
    ("https://10.1.2.3", "10.0.0.0/99", False),
]


@pytest.mark.parametrize(("base", "listed", "expected"), EXCLUDED)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy", "No_Proxy"])
def test_what_is_excluded_goes_without(base: str, listed: str, expected: bool, name: str) -> None:
    assert (found({"ALL_PROXY": "proxy:1", name: listed}, base) is None) is expected


def test_certificates_are_named_by_several_variables(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    environment = {
        "CURL_CA_BUNDLE": "/a.pem",
        "SSL_CERT_DIR": f"{one}:/nowhere:{two}",
        "NODE_EXTRA_CA_CERTS": "/b.pem",
        "REQUESTS_CA_BUNDLE": "",
    }
    assert [(each.variable, str(each.path)) for each in find_certificate_sources(environment)] == [
        ("SSL_CERT_DIR", str(one)),
        ("SSL_CERT_DIR", str(two)),
        ("NODE_EXTRA_CA_CERTS", "/b.pem"),
        ("CURL_CA_BUNDLE", "/a.pem"),
    ]
    assert [str(each.path) for each in find_certificate_sources({"SSL_CERT_DIR": "/nowhere"})] == ["/nowhere"]
