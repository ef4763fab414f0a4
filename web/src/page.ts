import { mount } from "svelte";
import App from "./App.svelte";
import { showLanguage } from "./lib/language.svelte.ts";
import { showTheme } from "./lib/theme.svelte.ts";

function show(): void {
  showTheme();
  showLanguage();
  mount(App, { target: document.getElementById("page") ?? document.body });
}

// The first script waits for nothing, so the document may still be on its way.
if (document.readyState === "loading") addEventListener("DOMContentLoaded", show, { once: true });
else show();
