/** Whether somebody is logged in, and the ways in and out. */

import { Refused, call, whenLoggedOut } from "./http.ts";
import { CONSOLE, SESSION } from "./paths.ts";

interface SessionAnswer {
  state: "setup" | "login" | "open";
  has_password: boolean;
  version: string;
  hostname: string;
}

class Session {
  /** `unknown` until the device has answered once. */
  state = $state<"unknown" | "setup" | "login" | "open">("unknown");
  version = $state("");
  /** Whether the device was given another version since this page was loaded. */
  isOutdated = $state(false);
  hostname = $state("");
  /** Whether one can log in, also while a setup code waits to be used. */
  hasPassword = $state(false);
  /** Whether it was ended here, on purpose. */
  isLeft = $state(false);

  constructor() {
    whenLoggedOut(() => {
      if (this.state === "open") this.state = "login";
    });
  }

  /** Ask the device how it is. */
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
    // Told first: of a session that turns out to have ended already, nothing is kept either.
    this.isLeft = true;
    try {
      await call("POST", `${CONSOLE}/logout`, {});
    } catch (error) {
      if (!(error instanceof Refused && error.status === 401)) {
        this.isLeft = false;
        throw error;
      }
    }
    // An answer from before it may have said otherwise meanwhile.
    this.isLeft = true;
    this.state = "login";
  }
}

export const session = new Session();
