import "./app.css";
import { askEarly } from "./lib/early.ts";

// The rest is in a separate script, which loads while the device answers.
askEarly(location.hash);
void import("./page.ts");
