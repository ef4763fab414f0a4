/** The documents that the device sends. Fields as its API names them. */

/** What a change answers. */
export interface Said {
  msg: string;
}

export interface Rule {
  id: number;
  ip: string;
  mac: string;
  comment: string;
  is_enabled: boolean;
  target_node: string;
  upload_limit_kbps: number;
  download_limit_kbps: number;
  created_at: string;
  updated_at: string;
}

export interface Node {
  id: number;
  name: string;
  protocol: string;
  config_json: string;
  group: string;
  created_at: string;
}

export type LineType = "l2tp" | "pptp";

export interface Line {
  id: number;
  type: LineType;
  name: string;
  server: string;
  port: number;
  username: string;
  password: string;
  secret: string;
  interface: string;
  comment: string;
  dns_profile: string;
  dns_servers: string[];
  is_enabled: boolean;
  is_online: boolean;
}

export interface ProxyService {
  id: number;
  name: string;
  outbound_interface: string;
  port: number;
  username: string;
  password: string;
  is_enabled: boolean;
  created_at: string;
}

export interface Whitelist {
  domains: string;
  ips: string;
  node: string;
}

export interface LineState {
  is_online: boolean;
  state: string;
  reason: string;
  next_attempt: string;
}

export interface Interface {
  name: string;
  role: string;
  is_up: boolean;
  ip: string;
  received: number;
  sent: number;
}

export interface Flow {
  target: string;
  kind: string;
  clients: number;
  egresses: string[];
  /** Bits a second, averaged over some ten seconds. */
  upload_bps: number;
  download_bps: number;
  /** Why its clients get no further; empty while they do. */
  problem: string;
}

/** Clients that get no further for one reason, and not by REJECT. */
export interface Blocked {
  reason: string;
  clients: number;
  /** The first of them. */
  targets: string[];
  since: string;
  /** As it stands among the overview's problems. */
  text: string;
}

export interface Overview {
  at: string;
  status: "running" | "stopped" | "restoring";
  is_open: boolean;
  uptime_s: number;
  version: string;
  revision: number;
  connections: number;
  memory: number;
  counts: {
    rules: number;
    enabled_rules: number;
    nodes: number;
    lines: number;
    online_lines: number;
    proxy_services: number;
    targets: number;
    /** Those of them that have clients, and a problem. */
    failing_targets: number;
  };
  interfaces: Interface[];
  lines: Record<string, LineState>;
  /** The first 200 of them: those that block clients, then those with the most clients. */
  flows: Flow[];
  /** What becomes of clients without a rule, and how many are in the LANs. */
  unruled: { target: string; is_blocked: boolean; reason: string; seen: number };
  blocked: Blocked[];
  /** Bounds that clients, or callers of proxy services, have reached within the last seconds. */
  reached: { kind: string; source: string; port: number; bound: number }[];
  /** Kind of such a bound -> packets beyond it since the data plane started. */
  refused: Record<string, number>;
  problems: string[];
}

/** What a rule's clients exchanged. */
export interface RuleTraffic {
  upload_bytes: number;
  upload_packets: number;
  download_bytes: number;
  download_packets: number;
}

export interface News {
  topic: string;
  subject: string;
  text: string;
}

export interface Change {
  at: string;
  who: string;
  source: string;
  what: string;
  text: string;
}

export interface SessionRow {
  id: string;
  is_current: boolean;
  source: string;
  agent: string;
  created_at: string;
  seen_at: string;
  expires_at: string;
}

export interface Access {
  token: string;
  api_prefix: string;
  plain_port: number;
  tls_port: number;
  device: string;
  mode: "off" | "enforced";
  api: "open" | "trial" | "API_ACCESS_REQUIRED" | "API_TRIAL_QUOTA_EXHAUSTED";
  trial_calls: number;
  trial_calls_left: number;
  proxy_service_quota: number;
  license: {
    serial: string;
    issued_at: string;
    expires_at: string;
    capabilities: string[];
  } | null;
  license_problem: string;
}

export interface DeviceSettings {
  unmanaged: string;
  delay_url: string;
  check_interval_s: number;
  group_strategy: string;
  sniff_domains: boolean;
}

export interface Explanation {
  client: string;
  destination: string;
  port: number;
  protocol: string;
  is_blocked: boolean;
  reason: string;
  /** The reason, where to try shows whether it is still so. */
  problem: string;
  since: string;
  /** Why it may be blocked all the same. */
  doubts: string[];
  rule: ExplainedRule | null;
  other_rules: ExplainedRule[];
  whitelist: { matches: boolean; entry: string; by: string; node: string };
  target: string;
  nodes: string[];
  egresses: string[];
  dns: { server: string; further: string[]; way: string };
  limits: { rule: string; upload_kbps: number; download_kbps: number };
  steps: string[];
}

export interface ExplainedRule {
  id: number;
  ip: string;
  comment: string;
  target_node: string;
}

export interface ProbeWay {
  name: string;
  exit_ip: string;
  delay: number;
  error: string;
}

export interface ProbeResult {
  target: string;
  /** The one of `ways` that the client's connections take; empty where that is not known. */
  way: string;
  ways: ProbeWay[];
  exit_ip: string;
  delay: number;
  error: string;
  url: string;
  in_force: boolean;
}

export interface ImportPreview {
  imported: number;
  /** Bad ones among them. */
  skipped: number;
  bad: number;
  /** Of the first 1,000 bad rows. */
  errors: string[];
  /** What has no effect in rows that are imported, and what the import would lead to. */
  notes: string[];
}
