// In a worker of the page "Drop a capture": Python, the analyzer, and one capture after the other.

import createPyodideModule from "./pyodide.asm.js";
import { loadPyodide } from "./pyodide.js";

const ANALYZER = "/analyzer";
const CAPTURE = "/capture";

async function started() {
  // Nothing is ever installed from elsewhere: the list of what could be is empty.
  const info = { abi_version: "2026_0", arch: "wasm32", platform: "emscripten_5_0_3", python: "3.14.2" };
  const indexURL = new URL(".", import.meta.url).href;
  const [python, archive] = await Promise.all([
    loadPyodide({ indexURL, createPyodideModule, lockFileContents: { info, packages: {} } }),
    fetch(new URL("nagle_lab.zip", indexURL)).then((answer) => answer.arrayBuffer()),
  ]);
  python.unpackArchive(archive, "zip", { extractDir: ANALYZER });
  python.runPython(`import sys; sys.path.insert(0, "${ANALYZER}")`);
  python.FS.mkdir(CAPTURE);
  return { python, diagnose: python.pyimport("in_page").diagnose };
}

// The file is read where it lies, as far as it is needed: none of it is copied.
function diagnosed({ python, diagnose }, file) {
  const { FS } = python;
  FS.mount(FS.filesystems.WORKERFS, { files: [file] }, CAPTURE);
  FS.chdir(CAPTURE);
  try {
    const found = diagnose(file.name, file.size, (what, part) => postMessage({ what, part }));
    const result = found.toJs({ dict_converter: Object.fromEntries });
    found.destroy();
    return result;
  } finally {
    FS.chdir("/");
    FS.unmount(CAPTURE);
  }
}

const analyzer = started();
analyzer.then(
  () => postMessage({ ready: true }),
  (error) => postMessage({ failed: String(error) }),
);
addEventListener("message", async ({ data: { file } }) => {
  try {
    postMessage({ result: diagnosed(await analyzer, file) });
  } catch (error) {
    postMessage({ failed: String(error).trim().split("\n").at(-1) });
  }
});
