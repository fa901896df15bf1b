"""What `ibidem doctor` looks at, in the order in which it is printed."""

from __future__ import annotations

from .checking import Check
from .checks_addresses import addresses
from .checks_data import ledger, prices, store
from .checks_logs import newest_logs
from .checks_machine import agents, node, optional_parts, versions
from .checks_network import certificates, egress, own_settings
from .checks_proxy import requests_come_through

CHECKS = (
    Check("versions", versions),
    Check("parts", optional_parts),
    Check("agents", agents),
    Check("node", node),
    Check("addresses", addresses),
    Check("settings", own_settings),
    Check("egress", egress),
    Check("certificates", certificates),
    Check("proxy", requests_come_through),
    Check("store", store),
    Check("ledger", ledger),
    Check("prices", prices),
    Check("logs", newest_logs),
)
