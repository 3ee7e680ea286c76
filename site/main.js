// Which page is this? The name of its body says it.

import { startDrop } from "./drop.js";
import { showMysteries } from "./mystery.js";
import { startSimulator } from "./page.js";
import { showPredictions } from "./table.js";

if (document.body.id === "simulator") startSimulator();
if (document.body.id === "mysteries") showMysteries();
if (document.body.id === "predictions") showPredictions();
if (document.body.id === "drop") startDrop();
