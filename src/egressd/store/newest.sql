CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE nodes (
	id INTEGER NOT NULL,
	name TEXT NOT NULL,
	protocol TEXT NOT NULL,
	config_json TEXT NOT NULL,
	"group" TEXT NOT NULL,
	created_at TEXT NOT NULL, change_ip_url TEXT DEFAULT '' NOT NULL, change_ip_via TEXT DEFAULT '' NOT NULL, subscription INTEGER DEFAULT '0' NOT NULL, name_there TEXT DEFAULT '' NOT NULL, gone_at TEXT DEFAULT '' NOT NULL,
	CONSTRAINT pk_nodes PRIMARY KEY (id),
	CONSTRAINT uq_nodes_name UNIQUE (name)
);
CREATE TABLE rules (
	id INTEGER NOT NULL,
	ip TEXT NOT NULL,
	mac TEXT NOT NULL,
	comment TEXT NOT NULL,
	is_enabled BOOLEAN NOT NULL,
	target_node TEXT NOT NULL,
	upload_limit_kbps INTEGER NOT NULL,
	download_limit_kbps INTEGER NOT NULL,
	created_at TEXT NOT NULL,
	updated_at TEXT NOT NULL, bound_mac TEXT DEFAULT '' NOT NULL,
	CONSTRAINT pk_rules PRIMARY KEY (id),
	CONSTRAINT ck_rules_switch CHECK (is_enabled IN (0, 1)),
	CONSTRAINT uq_rules_ip UNIQUE (ip)
);
CREATE TABLE lines (
	id INTEGER NOT NULL,
	type TEXT NOT NULL,
	name TEXT NOT NULL,
	server TEXT NOT NULL,
	port INTEGER NOT NULL,
	username TEXT NOT NULL,
	password TEXT NOT NULL,
	secret TEXT NOT NULL,
	interface TEXT NOT NULL,
	comment TEXT NOT NULL,
	dns_profile TEXT NOT NULL,
	dns_servers JSON NOT NULL,
	is_enabled BOOLEAN NOT NULL,
	CONSTRAINT pk_lines PRIMARY KEY (id),
	CONSTRAINT ck_lines_switch CHECK (is_enabled IN (0, 1)),
	CONSTRAINT uq_lines_name UNIQUE (name)
);
CREATE TABLE proxy_services (
	id INTEGER NOT NULL,
	name TEXT NOT NULL,
	outbound_interface TEXT NOT NULL,
	port INTEGER NOT NULL,
	username TEXT NOT NULL,
	password TEXT NOT NULL,
	is_enabled BOOLEAN NOT NULL,
	created_at TEXT NOT NULL,
	CONSTRAINT pk_proxy_services PRIMARY KEY (id),
	CONSTRAINT ck_proxy_services_switch CHECK (is_enabled IN (0, 1)),
	CONSTRAINT uq_proxy_services_name UNIQUE (name)
);
CREATE TABLE whitelist (
	id INTEGER NOT NULL,
	domains TEXT NOT NULL,
	ips TEXT NOT NULL,
	node TEXT NOT NULL,
	CONSTRAINT pk_whitelist PRIMARY KEY (id),
	CONSTRAINT ck_whitelist_one_row CHECK (id = 0)
);
CREATE TABLE settings (
	name TEXT NOT NULL,
	value JSON NOT NULL,
	CONSTRAINT pk_settings PRIMARY KEY (name)
);
CREATE TABLE numbers (
	name TEXT NOT NULL,
	number INTEGER NOT NULL,
	CONSTRAINT pk_numbers PRIMARY KEY (name)
);
CREATE TABLE counters (
	name TEXT NOT NULL,
	value INTEGER NOT NULL,
	CONSTRAINT pk_counters PRIMARY KEY (name)
);
CREATE TABLE meta (
	id INTEGER NOT NULL,
	revision INTEGER NOT NULL,
	generation TEXT NOT NULL,
	CONSTRAINT pk_meta PRIMARY KEY (id),
	CONSTRAINT ck_meta_one_row CHECK (id = 0)
);
CREATE TABLE password (
	id INTEGER NOT NULL,
	hash TEXT NOT NULL,
	CONSTRAINT pk_password PRIMARY KEY (id),
	CONSTRAINT ck_password_one_row CHECK (id = 0)
);
CREATE TABLE sessions (
	"key" TEXT NOT NULL,
	id TEXT NOT NULL,
	source TEXT NOT NULL,
	agent TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	seen_at INTEGER NOT NULL,
	CONSTRAINT pk_sessions PRIMARY KEY ("key"),
	CONSTRAINT uq_sessions_id UNIQUE (id)
);
CREATE TABLE tokens (
	id TEXT NOT NULL,
	name TEXT NOT NULL,
	digest TEXT NOT NULL,
	scopes JSON NOT NULL,
	created_at INTEGER NOT NULL,
	created_by TEXT NOT NULL,
	expires_at INTEGER NOT NULL,
	last_used_at INTEGER NOT NULL,
	CONSTRAINT pk_tokens PRIMARY KEY (id),
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
CREATE TABLE "changes" (
	number INTEGER NOT NULL,
	at TEXT NOT NULL,
	who TEXT NOT NULL,
	source TEXT NOT NULL,
	what TEXT NOT NULL,
	text TEXT NOT NULL,
	coded JSON,
	revision INTEGER,
	CONSTRAINT pk_changes PRIMARY KEY (number)
);
CREATE TABLE undo_log (
	revision INTEGER NOT NULL,
	at TEXT NOT NULL,
	who TEXT NOT NULL,
	source TEXT NOT NULL,
	what TEXT NOT NULL,
	text TEXT NOT NULL,
	coded JSON,
	undoes INTEGER,
	format INTEGER NOT NULL,
	size INTEGER NOT NULL,
	inverse BLOB,
	CONSTRAINT pk_undo_log PRIMARY KEY (revision)
);
CREATE TABLE trial (
	id INTEGER NOT NULL,
	began_at INTEGER NOT NULL,
	minutes INTEGER NOT NULL,
	who TEXT NOT NULL,
	revision INTEGER NOT NULL,
	format INTEGER NOT NULL,
	state BLOB NOT NULL,
	CONSTRAINT pk_trial PRIMARY KEY (id),
	CONSTRAINT ck_trial_one_row CHECK (id = 0)
);
CREATE TABLE alert_channels (
	id INTEGER NOT NULL,
	name TEXT NOT NULL,
	url TEXT NOT NULL,
	via TEXT NOT NULL,
	is_enabled BOOLEAN NOT NULL,
	created_at TEXT NOT NULL,
	CONSTRAINT pk_alert_channels PRIMARY KEY (id),
	CONSTRAINT ck_alert_channels_switch CHECK (is_enabled IN (0, 1)),
	CONSTRAINT uq_alert_channels_name UNIQUE (name)
);
CREATE TABLE target_groups (
	id INTEGER NOT NULL,
	name TEXT NOT NULL,
	strategy TEXT NOT NULL,
	members JSON NOT NULL,
	weights JSON NOT NULL,
	filter TEXT NOT NULL,
	check_url TEXT NOT NULL,
	check_interval_s INTEGER NOT NULL,
	tolerance_ms INTEGER NOT NULL,
	failback_min INTEGER NOT NULL,
	on_switch TEXT NOT NULL,
	rotate_every_s INTEGER NOT NULL,
	created_at TEXT NOT NULL,
	CONSTRAINT pk_target_groups PRIMARY KEY (id),
	CONSTRAINT uq_target_groups_name UNIQUE (name)
);
CREATE TABLE subscriptions (
	id INTEGER NOT NULL,
	name TEXT NOT NULL,
	url TEXT NOT NULL,
	user_agent TEXT NOT NULL,
	headers TEXT NOT NULL,
	"group" TEXT NOT NULL,
	interval_s INTEGER NOT NULL,
	via TEXT NOT NULL,
	include TEXT NOT NULL,
	exclude TEXT NOT NULL,
	"rename" JSON NOT NULL,
	gone TEXT NOT NULL,
	is_enabled BOOLEAN NOT NULL,
	created_at TEXT NOT NULL,
	CONSTRAINT pk_subscriptions PRIMARY KEY (id),
	CONSTRAINT ck_subscriptions_switch CHECK (is_enabled IN (0, 1)),
	CONSTRAINT uq_subscriptions_name UNIQUE (name)
);
INSERT INTO alembic_version (version_num) VALUES ('0011');
