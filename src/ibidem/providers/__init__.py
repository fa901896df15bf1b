"""HTTP facts about providers, for the proxy and the adapters. This package opens no sockets.

- `addresses`: providers, their default URLs and regions, and which URLs a user may set.
- `routes`: which provider and wire format a path belongs to, and the client's name for its session.
- `default_upstreams`: which requests may be sent to a default URL with their credentials.
- `headers`: which headers are forwarded, and whether a login is a subscription.
- `rejections`: which errors of a provider may be due to how a request is written.
- `usage_reader`: token counts in a response, read while it is forwarded.
- `egress`: outbound proxies and certificates from this machine's settings.
"""
