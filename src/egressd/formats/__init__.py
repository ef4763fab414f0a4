"""Text to nouns and back: configurations, import rows, share links, whitelist entries.

Called by `service` (to accept what operators send, and to write share links) and by `planner`
(to read a node's configuration). Imports `model` and nothing else of ours; never touches a file,
a socket, the clock, randomness, a subprocess or a log. docs/formats.md shows how it is used by
itself, and what holds for whatever text it is given.

What is given and what is kept
- `config_json`: a node's configuration text, and the settings kept inside it.
- `entries`: which fields a node of each protocol has, and what each takes; `layers` those of TLS
  and transports, which they share; `amounts`, `ech`, `hosts` what single fields hold.
- `fields`: the table-driven reader that `entries` is written for.
- `engine_limits`: what the engine cannot do that a text may ask for; the one place that says so.
- `json_text`: strict JSON. `scalars`: values whose type is known no sooner than their field is.

Texts of nodes
- `nodes`: an import's text, and what became of each of its rows (`rows`).
- `node_text`: the text as a whole: which of the forms below it has, and where each node begins.
- `node_rows`, `seller_rows`: rows of fields.
- `clash_document`, `clash_text`: Clash's YAML, its list's items, and the small part of YAML that
  they are written in. `clash_keys`: the keys of entries as programs spell them.
- `json_items`: JSON documents, item by item. `singbox`: sing-box's outbounds, and SIP008's servers.
- `share_links`: ``ss://``, ``vmess://``, … read and written; its `several` finds links in a row,
  and its `parameters` knows which of a link's were used.
- `node_draft`, `node_names`: from what a text says to a checked draft and its name.

Others
- `lines`, `rules`, `proxy_services`: import rows, one row a line (`rows`).
- `numbering`: automatic names.
- `whitelist`: the domains and addresses of the whitelist.
"""
