/** The documents that the device sends, with the API's field names. */

import type { Fault } from "./faults.ts";

/** The answer to a change. */
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
  encryption: string;
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
  /** Bits per second, averaged over about ten seconds. */
  upload_bps: number;
  download_bps: number;
  /** The reason why the target's clients are blocked; empty if they are not. */
  problem: string;
}

/** Clients that are blocked for one reason, other than by REJECT. */
export interface Blocked {
  reason: string;
  clients: number;
  /** The first of the targets concerned. */
  targets: string[];
  since: string;
  /** The sentence that stands for it among the overview's problems. */
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
    /** Number of targets that have clients and a problem. */
    failing_targets: number;
  };
  interfaces: Interface[];
  lines: Record<string, LineState>;
  /** The first 200 flows: those that block clients, then those with the most clients. */
  flows: Flow[];
  /** The outcome for clients without a rule; `seen` is their number in the LANs. */
  unruled: { target: string; is_blocked: boolean; reason: string; seen: number };
  blocked: Blocked[];
  /** Bounds that clients, or users of proxy services, have reached within the last seconds. */
  reached: { kind: string; source: string; port: number; bound: number }[];
  /** Packets beyond such a bound since the data plane started, by the kind of bound. */
  refused: Record<string, number>;
  problems: string[];
}

/** The traffic of a rule's clients. */
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
  /** A copy of the reason if a new test shows whether it still holds; else empty. */
  problem: string;
  since: string;
  /** Reasons why the traffic may be blocked although `is_blocked` is false. */
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
  /** The name in `ways` that the client's connections use; empty if unknown. */
  way: string;
  ways: ProbeWay[];
  exit_ip: string;
  delay: number;
  error: string;
  url: string;
  in_force: boolean;
}

/** A row that cannot be used, and its faults. */
export interface BadRow {
  line: number;
  errors: Fault[];
}

export interface ImportPreview {
  imported: number;
  /** Rows that are not imported, bad rows included. */
  skipped: number;
  bad: number;
  /** The first 1,000 bad rows. */
  bad_rows: BadRow[];
  /** Parts of imported rows that have no effect, and consequences of the import. */
  notes: string[];
}
