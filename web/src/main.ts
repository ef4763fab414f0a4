import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { currentLanguage, useLanguage } from "./lib/language.svelte.ts";
import { currentTheme, useTheme } from "./lib/theme.svelte.ts";

// Before the first paint.
useTheme(currentTheme());
useLanguage(currentLanguage());

const target = document.getElementById("page");
if (target) mount(App, { target });
