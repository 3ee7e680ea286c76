// The model's predictions beside what was recorded: every variant, every size of the sweeps, every recorded case.

import { setupOfVariant } from "./scenarios.js";
import { simulate, verdictOf } from "./world.js";

// A proxy's time from one write to its next is not recorded. Where it decides, the outcome is a race: so the sizes
// are run with writes straight behind each other, and with a pause longer than a round trip.
const CALLS = [2, 2000]; // µs

export function predictVariant(scenario, variant, changed = {}) {
  return verdictOf(simulate(setupOfVariant(scenario, variant, changed)));
}

// STALL, CLEAN, or RACE where the time between a program's writes decides.
export function predictSize(scenario, variant, parameter, size) {
  const values = { [parameter]: size };
  const verdicts = CALLS.map(
    (call) => verdictOf(simulate({ ...setupOfVariant(scenario, variant, values), call })).verdict,
  );
  return verdicts[0] === verdicts[1] ? verdicts[0] : "RACE";
}

// What a sweep's row says: all, none, or some of the exchanges stalled.
export function recordedSize(row) {
  if (row.verdict === "CLEAN") return "CLEAN";
  return row.share < 0.9 ? "RACE" : "STALL";
}

export function predictions(data) {
  const rows = [];
  for (const [scenario, one] of Object.entries(data.scenarios)) {
    for (const [name, variant] of Object.entries(one.variants)) {
      const predicted = predictVariant(scenario, variant);
      const { verdict, share, packets } = variant.recorded;
      rows.push({
        kind: "variant",
        of: scenario,
        name,
        predicted,
        recorded: { verdict, share, packets, heldBy: verdict === "STALL" ? variant.heldBy : null },
      });
    }
    for (const row of one.sizes) {
      const predicted = predictSize(scenario, one.variants[row.variant], one.parameter, row.size);
      rows.push({
        kind: "size",
        of: scenario,
        name: row.series,
        size: row.size,
        predicted: { verdict: predicted },
        recorded: { verdict: recordedSize(row), share: row.share },
      });
    }
  }
  for (const [name, one] of Object.entries(data.cases)) {
    if (!one.setup) continue;
    rows.push({
      kind: "case",
      of: one.folder.split("/")[1],
      name,
      predicted: verdictOf(simulate(one.setup)),
      recorded: one.recorded,
    });
  }
  for (const [name, one] of Object.entries(data.museum?.exhibits ?? {})) {
    for (const half of ["bad", "good"]) {
      const recorded =
        half === "bad"
          ? { verdict: "STALL", heldBy: one.heldBy, ...one.recorded }
          : { verdict: "CLEAN", heldBy: null, stalls: 0 };
      const predicted = verdictOf(simulate(one[half]));
      rows.push({
        kind: "exhibit",
        of: name,
        name: half,
        predicted: { ...predicted, share: predicted.shareOfAll },
        recorded,
      });
    }
  }
  return rows.map((row) => ({ ...row, agrees: agree(row) }));
}

// Same verdict, same end that held, and where a share was recorded, within a tenth of it; where stalls were counted, within one per connection.
function agree({ predicted, recorded }) {
  if (predicted.verdict !== recorded.verdict) return false;
  if (predicted.heldBy !== undefined && recorded.heldBy !== undefined && predicted.heldBy !== recorded.heldBy)
    return false;
  if (recorded.stalls !== undefined && Math.abs(predicted.stalls - recorded.stalls) > 1) return false;
  return (
    predicted.share === undefined || recorded.share === undefined || Math.abs(predicted.share - recorded.share) <= 0.1
  );
}
