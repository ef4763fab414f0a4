import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { showLanguage } from "./lib/language.svelte.ts";
import { showTheme } from "./lib/theme.svelte.ts";

// Before the first paint.
showTheme();
showLanguage();

const target = document.getElementById("page");
if (target) mount(App, { target });
