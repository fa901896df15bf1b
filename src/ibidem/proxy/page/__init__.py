"""Admin pages of the proxy, under /ibidem.

- `admin_pages` checks access and responds: the page, its API, metrics, health, and originals of evicted texts.
- `dashboard` builds the page from its HTML, CSS and JavaScript, and formats the metrics for Prometheus.
- `dashboard.js` has shared drawing functions, `dashboard_views.js` draws conversations, `dashboard_edits.js` shows
  edits, `dashboard_live.js` follows the API.
- `daily_totals` reads the usage database, which also has the data of earlier runs.
- `pause_control` checks requests that pause or resume conversations.

Everything else is built from `LiveStats.snapshot`. Its field names, those of the metrics and the paths are promised to
users. The page treats a text of a client as text, never as markup, and shows it only if the settings allow it
(`may_see_texts`). The page loads nothing from other hosts.
"""
