"""Text to nouns and back: configurations, import rows, share links, whitelist entries.

Called by `service` (to accept what operators send, and to write share links) and by `planner`
(to read a node's configuration). Imports `model` and nothing else of ours; never touches a file,
a socket, the clock, randomness, a subprocess or a log.

- `config_json`: a node's configuration text, and the settings kept inside it.
- `entries`: which fields a node of each protocol has, and what each takes.
- `fields`: the table-driven reader that `entries` is written for.
- `json_text`, `clash_text`: strict JSON, and the small part of YAML that Clash users write.
- `hosts`: host names, addresses and ``host:port``.
- `nodes`, `lines`, `rules`, `proxy_services`: import rows, one row a line (`rows`).
- `share_links`: ``ss://``, ``vmess://``, … read and written.
- `numbering`: automatic names.
- `whitelist`: the domains and addresses of the whitelist.
"""
