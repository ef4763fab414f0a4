/** Whether somebody is logged in, and the ways in and out. */

import { call, whenLoggedOut } from "./http.ts";
import { CONSOLE, SESSION } from "./paths.ts";

interface SessionAnswer {
  state: "setup" | "login" | "open";
  version: string;
  hostname: string;
}

class Session {
  /** `unknown` until the device has answered once. */
  state = $state<"unknown" | "setup" | "login" | "open">("unknown");
  version = $state("");
  hostname = $state("");

  constructor() {
    whenLoggedOut(() => {
      if (this.state === "open") this.state = "login";
    });
  }

  async load(): Promise<void> {
    const answer = await call<SessionAnswer>("GET", SESSION);
    this.version = answer.version;
    this.hostname = answer.hostname;
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
    await call("POST", `${CONSOLE}/logout`, {});
    this.state = "login";
  }
}

export const session = new Session();
