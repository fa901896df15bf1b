"""What the proxy itself answers, under /ibidem.

- `pages` says who may see what, and answers: the page, its API, metrics, health, and texts that were let go.
- `dashboard` puts the page together from its HTML, CSS and JavaScript, and writes the figures for Prometheus.
- `dashboard.js` has what the others draw with, `dashboard_views.js` draws conversations, `dashboard_edits.js` shows
  what was rewritten, `dashboard_live.js` follows the API.
- `days` adds up what was kept on disk, also by proxies before this one.

All else here is made from the object that `Records.snapshot` gives. Its field names, those of the metrics and the
paths are promised to users. A text that a client sent is text to the page, never markup, and is shown only to those
whom the settings allow (`may_see_texts`). The page loads nothing from anywhere else.
"""
