// The cycle of `lessor bench cycle` on graphile-worker: CLIENTS producers add jobs, CLIENTS workers of one runner run them, and at most
// four jobs for each producer are open. Prints the jobs that were completed each second.

import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const WARM_UP_MS = 500;
const OPEN_JOBS_PER_CLIENT = 4;

const clients = Number(process.env.CLIENTS);
const seconds = Number(process.env.SECONDS);
const payload = { text: "1".repeat(Number(process.env.PAYLOAD_BYTES)) };
// A line for each job would be half of the cost.
const logger = new Logger(() => () => {});
const pool = () => new pg.Pool({ connectionString: process.env.DATABASE_URL, max: Math.min(clients, 32) });

// Producers and workers are separate in production, so they do not share connections here.
const producers = await makeWorkerUtils({ pgPool: pool(), logger });
await producers.migrate();

let done = 0;
let open = 0;
let waiting = [];
const release = () => {
  open -= 1;
  waiting.shift()?.();
};

// Completions are counted when they are durable, which the event `job:complete` tells.
const runner = await run({
  pgPool: pool(),
  logger,
  concurrency: clients,
  noHandleSignals: true,
  taskList: { bench: async () => {} },
});
runner.events.on("job:complete", () => {
  done += 1;
  release();
});
runner.events.on("job:failed", ({ error }) => fail(error));

function fail(error) {
  console.error(error);
  process.exit(1);
}

async function produce() {
  for (;;) {
    while (open >= clients * OPEN_JOBS_PER_CLIENT) {
      await new Promise((resolve) => waiting.push(resolve));
    }
    open += 1;
    await producers.addJob("bench", payload);
  }
}
for (let n = 0; n < clients; n += 1) {
  produce().catch(fail);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
await pause(WARM_UP_MS);
const [before, began] = [done, performance.now()];
await pause(seconds * 1000);
const rate = (done - before) / ((performance.now() - began) / 1000);
console.log(JSON.stringify({ queue: "graphile-worker", cyclesPerSecond: rate }));
process.exit(0);
