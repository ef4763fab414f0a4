/** Undoing changes of the configuration. */

import { faultText, feedback } from "./feedback.svelte.ts";
import { call } from "./http.ts";
import { said, t } from "./language.svelte.ts";
import { OPS } from "./paths.ts";
import type { UndoAnswer } from "./types.ts";

const SHOWN = 10;

type Changed = UndoAnswer["objects"][number];

const pathOf = (revision: number): string => `${OPS}/changes/${revision}/undo`;

/** Undo a change at once. */
export async function undo(revision: number): Promise<void> {
  await feedback.during(() => call<UndoAnswer>("POST", pathOf(revision), {}));
}

/** Show what undoing a change would do, ask, and do it. */
export async function offerUndo(revision: number): Promise<void> {
  let would: UndoAnswer;
  try {
    would = await call<UndoAnswer>("POST", pathOf(revision), { dry_run: true });
  } catch (error) {
    feedback.say(faultText(error), true);
    return;
  }
  const lines = would.objects.slice(0, SHOWN).map(lineOf);
  const more = would.total - lines.length;
  if (more > 0) lines.push(t("undo.more", { n: more }));
  const isSure = await feedback.ask({
    title: t("undo.title", { revision }),
    text: would.notes ? said(would.notes_coded) : t("undo.text"),
    lines,
    action: t("undo.change"),
  });
  if (isSure) await undo(revision);
}

function lineOf({ action, kind, name }: Changed): string {
  const what = `${kindOf(kind)} ${name}`.trim();
  if (action === "created") return t("undo.created", { what });
  return action === "deleted" ? t("undo.deleted", { what }) : t("undo.changed", { what });
}

function kindOf(kind: Changed["kind"]): string {
  switch (kind) {
    case "node":
      return t("undo.node");
    case "rule":
      return t("undo.rule");
    case "line":
      return t("undo.line");
    case "proxy_service":
      return t("undo.service");
    case "alert_channel":
      return t("undo.channel");
    case "group":
      return t("undo.group");
    case "subscription":
      return t("undo.subscription");
    case "whitelist":
      return t("page.whitelist");
    case "settings":
      return t("page.settings");
    case "other":
      return "";
  }
}
