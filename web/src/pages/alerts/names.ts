/** What can be alerted, in words. */

import { t } from "../../lib/language.svelte.ts";

export function alertNames(): Record<string, string> {
  return {
    "node.failing": t("alerts.on.node"),
    "line.down": t("alerts.on.line"),
    "wan.down": t("alerts.on.wan"),
    "member.lost": t("alerts.on.member"),
    "exit.changed": t("alerts.on.exitChanged"),
    "exit.shared": t("alerts.on.exitShared"),
    "device.new": t("alerts.on.device"),
    "device.impostor": t("alerts.on.impostor"),
    "login.failed": t("alerts.on.login"),
    "disk.low": t("alerts.on.disk"),
    "backup.old": t("alerts.on.backup"),
    "subscription.failed": t("alerts.on.subscription"),
    "quota.low": t("alerts.on.quota"),
    "service.healed": t("alerts.on.healed"),
    "service.restarted": t("alerts.on.restarted"),
  };
}
