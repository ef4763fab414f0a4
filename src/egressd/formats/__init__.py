"""Text to nouns and back: configurations, import rows, share links, whitelist entries.

`service` calls this package to accept what operators send and to write share links; `planner` calls
it to read a node's configuration. It imports `model` and no other package of egressd; it never
touches a file, a socket, the clock, randomness, a subprocess or a log. docs/formats.md shows how to
use it by itself, and states what holds for any text given to it.

Configurations
- `config_json`: a node's configuration text, and the settings kept inside it.
- `entries`: the fields of a node of each protocol, and the values that each field takes. `layers`
  has the fields of TLS and transports, which protocols share; `amounts`, `ech` and `hosts` check
  the values of single fields.
- `fields`: the table-driven reader of the tables in `entries`.
- `engine_limits`: options that a text may ask for and the engine lacks, listed in this one place.
- `json_text`: strict JSON. `scalars`: values whose type is known only once their field is known.

Texts of nodes
- `nodes`: an import's text, and the result of each of its rows (`rows`).
- `node_text`: the text as a whole: its form, one of those below, and the start of each node.
- `node_rows`, `seller_rows`: rows of fields.
- `clash_document`, `clash_text`: Clash's YAML, its list's items, and the small part of YAML that
  they are written in. `clash_keys`: the keys of entries as programs spell them.
- `json_items`: JSON documents, item by item. `singbox`: sing-box's outbounds, and SIP008's servers.
- `share_links`: ``ss://``, ``vmess://``, … read and written; its `several` finds links in a row,
  and its `parameters` records which of a link's parameters were used.
- `node_draft`, `node_names`: from parsed text to a checked draft and its name.

Others
- `lines`, `rules`, `proxy_services`: import rows, one row a line (`rows`).
- `default_names`: automatic names.
- `masking`: configurations without their credentials.
- `whitelist`: the domains and addresses of the whitelist.
"""
