/**
 * The examples of the API documents. Each example runs as printed, from top to bottom, on one gateway per document with
 * the demo archive.
 *
 * While an example subscribes, the library stays suspended until the stream has sent a message. The first message
 * therefore does not depend on timing.
 */
import path from 'node:path';
import { afterAll, beforeAll, describe, test } from 'vitest';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { archiveDemo, makeDemo } from '../../src/main/demo.js';
import { createDirectoryLibrary } from '../../src/tape/directory/index.js';
import { startApp, type TestApp } from '../support/app.js';
import { type Example, expectAnswer, readExamples } from '../support/examples.js';
import { askData } from '../support/graphql.js';
import { cleanUp } from '../support/process.js';
import { type Relay, startRelay } from '../support/relay.js';
import { findProgram, runExample, SHOWN_URL } from '../support/run-example.js';

const documents = ['docs/reference/rest.md', 'docs/reference/graphql.md'];

interface Place {
  app: TestApp;
  engine: Engine;
  relay: Relay;
}

const places = new Map<string, Place>();

const missing = ['bash', 'curl'].filter((name) => !findProgram(name));
if (missing.length > 0) console.warn(`${missing.join(', ')} missing: the examples are skipped`);

beforeAll(async () => {
  if (missing.length > 0) return;
  for (const document of documents) {
    const app = await startApp();
    const library = createDirectoryLibrary(path.join(app.dataDir, 'library'));
    await makeDemo(app.ctx, () => archiveDemo(app.ctx, library));
    const engine = await startEngine(app.ctx, library, { drainMs: 200 });
    places.set(document, { app, engine, relay: await startRelay(app.url) });
  }
});

afterAll(async () => {
  for (const { app, engine, relay } of places.values()) {
    await relay.close();
    await engine.stop();
    await app.close();
  }
  await cleanUp();
});

describe.runIf(missing.length === 0).each(documents)('%s', (document) => {
  const rows = readExamples(document).map((example) => [example.name, example] as const);
  test.each(rows)('%s', async (_name, example) => {
    await check(example, places.get(document) as Place);
  });
});

const suspendLibrary =
  'mutation { suspend(input: { kind: LIBRARY, name: "directory", mode: DRAINING }) { errors { message } } }';
const resumeLibrary = 'mutation { resume(input: { kind: LIBRARY, name: "directory" }) { errors { message } } }';

async function check(example: Example, { app, relay }: Place): Promise<void> {
  const subscribes = /\bsubscription\b/.test(example.text);
  let begun: Promise<unknown> | undefined;
  const begin = () => {
    begun ??= askData(app, resumeLibrary);
    return begun;
  };
  relay.watch({ onFirstMessage: () => void begin() });
  if (subscribes) await askData(app, suspendLibrary);
  let output: string;
  try {
    output = await runExample(example, { url: relay.url, token: app.token });
  } finally {
    if (subscribes) await begin();
  }
  if (example.answer) expectAnswer(example.answer, output.replaceAll(relay.url, SHOWN_URL));
}
