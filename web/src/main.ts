import "./app.css";
import { askEarly } from "./lib/early.ts";

// All else is in a script of its own, which arrives while the device answers.
askEarly(location.hash);
void import("./page.ts");
