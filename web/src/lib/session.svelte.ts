/** The operator's session: its state, setup, login and logout. */

import { Refused, call, whenLoggedOut } from "./http.ts";
import { CONSOLE, SESSION } from "./paths.ts";

interface SessionAnswer {
  state: "setup" | "login" | "open";
  has_password: boolean;
  version: string;
  hostname: string;
}

class Session {
  /** `unknown` until the device's first answer. */
  state = $state<"unknown" | "setup" | "login" | "open">("unknown");
  version = $state("");
  /** True if the device's version has changed since this page was loaded. */
  isOutdated = $state(false);
  hostname = $state("");
  /** True if a password is set: login then works even while a setup code is pending. */
  hasPassword = $state(false);
  /** True if the operator ended the session in this page. */
  isLeft = $state(false);

  constructor() {
    whenLoggedOut(() => {
      if (this.state === "open") this.state = "login";
    });
  }

  /** Read the session's state from the device. */
  async load(signal?: AbortSignal): Promise<void> {
    const answer = await call<SessionAnswer>("GET", SESSION, undefined, signal);
    this.isOutdated ||= this.version !== "" && answer.version !== this.version;
    this.version = answer.version;
    this.hostname = answer.hostname;
    this.hasPassword = answer.has_password;
    this.isLeft &&= answer.state !== "open";
    this.state = answer.state;
  }

  async setUp(code: string, password: string): Promise<void> {
    await call("POST", `${CONSOLE}/setup`, { code, password });
    await this.load();
  }

  async logIn(password: string): Promise<void> {
    await call("POST", `${CONSOLE}/login`, { password });
    await this.load();
  }

  async logOut(): Promise<void> {
    // Set before the request: if it answers 401, the page must not be kept either.
    this.isLeft = true;
    try {
      await call("POST", `${CONSOLE}/logout`, {});
    } catch (error) {
      if (!(error instanceof Refused && error.status === 401)) {
        this.isLeft = false;
        throw error;
      }
    }
    // Set again: an older answer to `load` may have cleared it meanwhile.
    this.isLeft = true;
    this.state = "login";
  }
}

export const session = new Session();
