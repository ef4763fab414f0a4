/**
 * The documents that the device sends, with the API's field names. Those of the API itself are in
 * the OpenAPI document, from which `schemas.ts` is generated; the others are the console's own.
 */

import type * as api from "./schemas.ts";
import type { Coded } from "./sentences.ts";

export type {
  Changes,
  CheckFindings,
  ClientConnection,
  ConnectionList,
  DeviceList,
  Exit,
  ExitList,
  MemberList,
  MemberState,
  Explanation,
  GroupHistory,
  Interfaces,
  LinesHistory,
  LineTimeline,
  NodeDelayRow,
  NodeHistory,
  NodeLinks,
  NodesHistory,
  Quota,
  RuleCounters,
  RuleTraffic,
  RulesSince,
  TopTraffic,
  TrafficHistory,
} from "./schemas.ts";

/** The answer to a change: what was done, and what to know about it. */
export interface Said {
  msg_coded: Coded;
  /** The revision that the change led to; absent if the configuration is the same as before. */
  revision?: number | null;
}

export type Rule = api.RuleRow;
export type ScopedToken = api.TokenRow;
export type NewToken = api.TokenCreated & Said;
export type AlertChannel = api.AlertChannelRow;
export type AlertPolicy = api.AlertPolicyAnswer;
export type AlertTested = api.AlertTested;
export type SentAlert = api.SentAlert;
export type Group = api.GroupRow;
export type Subscription = api.SubscriptionRow;
export type SubscriptionRefreshed = api.SubscriptionRefreshed & Said;
export type Device = api.DeviceSeen;
export type Node = api.NodeRow;
export type NodeObject = api.NodeObject;
export type WireguardKey = api.WireguardKey;
export type Rotation = api.RotationShown & { reason_coded?: Coded | null };
export type LineType = "l2tp" | "pptp";
export type Line = api.LineRow & { type: LineType };
export type ProxyService = api.ProxyServiceRow;
export type Whitelist = api.WhitelistAnswer;
export type DeviceSettings = api.SettingsAnswer;
export type Overview = api.Overview & { status: "running" | "stopped" | "restoring" };
export type Interface = Overview["interfaces"][number];
export type Flow = Overview["flows"][number];
export type Change = api.Changes["data"][number];
export type UndoAnswer = api.UndoAnswer & Said & { notes_coded: Coded | null };
export type ProbeResult = api.Proof;
export type ImportPreview = api.Preview;
export type RowFate = ImportPreview["fates"][number];
export type RecognisedText = api.RecognisedText;
export type BadRow = ImportPreview["bad_rows"][number];

export interface News {
  topic: string;
  subject: string;
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
