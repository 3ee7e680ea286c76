// The page that diagnoses a reader's capture. The analyzer is in a worker, so that the page goes on answering; it is
// fetched when somebody is about to give a file, and kept for the next one.

import { element } from "./panels.js";

const SAID_EVERY = 1000; // ms: a screen reader has to finish one before the next
const SHOWN = 1e6; // characters of JSON; more of it makes a page slow

const at = (id) => document.getElementById(id);

// The worker begins with a script of this page, and not with a file of its own, because then the page's policy is the
// worker's, too.
function startWorker() {
  const script = `import ${JSON.stringify(new URL("analyzer/worker.js", document.baseURI).href)};`;
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  return new Worker(url, { type: "module" });
}

// Text that changes often, told at most once a second; the last of it always.
function teller(place) {
  let last = 0;
  let waiting;
  return (text) => {
    clearTimeout(waiting);
    const show = () => {
      last = performance.now();
      place.textContent = text;
    };
    waiting = setTimeout(show, Math.max(0, last + SAID_EVERY - performance.now()));
  };
}

function offer(link, text, type, name) {
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
}

function showFound(file, { verdict, json, html }) {
  const badge = element("span", verdict, `verdict ${verdict.toLowerCase()}`);
  at("verdict").replaceChildren(badge, ` ${file.name}`);
  const stem = file.name.replace(/\.(pcap|pcapng|cap)?(\.(gz|zst))?$/, "") || "capture";
  offer(at("save-html"), html, "text/html", `${stem}.html`);
  offer(at("save-json"), json, "application/json", `${stem}.json`);
  at("report").srcdoc = html;
  const large = `${(json.length / 1e6).toFixed(1)} MB: save it, and look at it with jq or an editor.`;
  at("json").querySelector("pre").textContent = json.length > SHOWN ? large : json;
  at("found").hidden = false;
  at("verdict").focus();
}

export function startDrop() {
  const say = teller(at("status"));
  let worker; // of the analyzer, ready or on its way
  let ready = false;
  let file; // that is being diagnosed

  function finish() {
    file = undefined;
    at("working").hidden = true;
    at("file").value = "";
  }

  function fail(line) {
    finish();
    say("");
    at("wrong").textContent = line;
    at("wrong").hidden = false;
  }

  function end() {
    worker?.terminate();
    worker = undefined;
    ready = false;
  }

  function heard({ data }) {
    if (data.ready) {
      ready = true;
    } else if (data.failed) {
      end();
      fail(`The analyzer ended: ${data.failed}. Use the command line: nagle-lab analyze ${file?.name ?? "FILE"}`);
    } else if (data.what && file) {
      at("part").value = data.part;
      say(`${file.name}: ${data.what}`);
    } else if (data.result?.error) {
      fail(data.result.error);
    } else if (data.result) {
      const of = file;
      finish();
      say(`${of.name}: ${data.result.verdict}`);
      showFound(of, data.result);
    }
  }

  function prepare() {
    if (worker) return;
    worker = startWorker();
    worker.addEventListener("message", heard);
    worker.addEventListener("error", () => {
      end();
      fail("The analyzer could not be loaded: see the console of your browser, and use the command line.");
    });
  }

  function take(files) {
    if (!files.length || file) return;
    at("wrong").hidden = true;
    at("found").hidden = true;
    const [given] = files;
    if (files.length > 1) return fail("One capture at a time: drop a single file.");
    file = given;
    at("part").removeAttribute("value");
    at("working").hidden = false;
    say(ready ? `${given.name}: reading` : "Starting Python");
    prepare();
    worker.postMessage({ file: given });
  }

  if (location.protocol === "file:") {
    at("file").disabled = true;
    fail("A browser runs the analyzer only if a web server sends it. In the folder of this page: python3 -m http.server, then open http://localhost:8000/drop.html");
    return;
  }
  const zone = at("zone");
  for (const kind of ["pointerenter", "focusin"]) zone.addEventListener(kind, prepare);
  at("file").addEventListener("change", () => take(at("file").files));
  at("stop").addEventListener("click", () => {
    end();
    finish();
    say("Stopped.");
    at("file").focus();
  });
  const mark = (over) => zone.classList.toggle("over", over);
  addEventListener("dragover", (event) => {
    event.preventDefault();
    mark(true);
    prepare();
  });
  addEventListener("dragleave", (event) => event.relatedTarget || mark(false));
  addEventListener("drop", (event) => {
    event.preventDefault();
    mark(false);
    take(event.dataTransfer.files);
  });
}
