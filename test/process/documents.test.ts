/**
 * The examples of the API documents. Each example runs as printed, from top to bottom, on one gateway per document with
 * the demo archive.
 *
 * While an example subscribes, the library stays suspended until the stream has sent a message. The first message
 * therefore does not depend on timing. If the example resumes a stream, the test disconnects the first stream.
 */
import { rmSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Engine, startEngine } from '../../src/engine/runner.js';
import { makeDemo } from '../../src/main/demo.js';
import { createDirectoryLibrary } from '../../src/tape/directory/index.js';
import { startApp, type TestApp } from '../support/app.js';
import { useBrowser } from '../support/chromium.js';
import { type Example, expectAnswer, readExamples } from '../support/examples.js';
import { askData } from '../support/graphql.js';
import { cleanUp } from '../support/process.js';
import { type Relay, startRelay, type Watch } from '../support/relay.js';
import { compileExamples, findProgram, makeWorkDir, runExample, runPage, SHOWN_URL } from '../support/run-example.js';
import { createGate } from '../support/wait.js';

const documents = ['docs/reference/rest.md', 'docs/reference/graphql.md'];

interface Place {
  app: TestApp;
  engine: Engine;
  relay: Relay;
}

const openWindow = useBrowser();
const places = new Map<string, Place>();
const workDir = makeWorkDir();

/** DATA_DIR as the documents print it. */
const SHOWN_DIR = '/home/ada/tapegate/data';

const missing = ['bash', 'curl', 'python3'].filter((name) => !findProgram(name));
/** Whether examples run at all: every example depends on the shell examples. */
const isAnyRun = !missing.includes('bash') && !missing.includes('curl');
const isRun = ({ language }: Example) => isAnyRun && !(language === 'python' && missing.includes('python3'));

for (const name of missing) {
  console.warn(`${name} is missing: ${name === 'python3' ? 'examples in Python' : 'the examples'} are skipped`);
}

let compiled: Promise<void>;

beforeAll(async () => {
  if (!isAnyRun) return;
  compiled = compileExamples(documents.flatMap(readExamples), workDir);
  compiled.catch(() => {}); // the tests of the TypeScript examples report the error
  for (const document of documents) {
    const app = await startApp();
    const library = createDirectoryLibrary(path.join(app.dataDir, 'library'));
    await makeDemo(app.ctx, library);
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
  rmSync(workDir, { recursive: true, force: true });
});

describe.each(documents)('%s', (document) => {
  const place = () => places.get(document) as Place;
  const examples = readExamples(document);

  for (const example of examples) {
    test.runIf(isRun(example))(example.name, async () => {
      if (example.language === 'ts') await compiled;
      await check(example, place());
    });
  }
});

test('one example in each language resumes after a break', () => {
  const examples = documents.flatMap(readExamples).filter(resumes);
  expect(examples.map(({ language }) => language)).toEqual(['ts', 'html']);
});

const suspendLibrary =
  'mutation { suspend(input: { kind: LIBRARY, name: "directory", mode: DRAINING }) { errors { message } } }';
const resumeLibrary = 'mutation { resume(input: { kind: LIBRARY, name: "directory" }) { errors { message } } }';

const resumes = ({ language, text }: Example) => language === 'html' || /\bafter = /.test(text);

async function check(example: Example, { app, relay }: Place): Promise<void> {
  const subscribes = /\bsubscription\b/.test(example.text);
  let begun: Promise<unknown> | undefined;
  const begin = () => {
    begun ??= askData(app, resumeLibrary);
    return begun;
  };
  const shown = createGate();
  const isShown = example.language === 'html' ? shown.opened : undefined;
  const watch = relay.watch({ breaks: resumes(example), isShown, onFirstMessage: () => void begin() });
  if (subscribes) await askData(app, suspendLibrary);
  let output: string;
  try {
    const isPage = example.language === 'html' || example.language === 'js';
    output = isPage
      ? await runPage(example, relay, await openWindow('about:blank'), shown.open)
      : await runExample(example, { url: relay.url, token: app.token }, workDir);
  } finally {
    if (subscribes) await begin();
  }
  if (example.answer) {
    expectAnswer(example.answer, output.replaceAll(relay.url, SHOWN_URL).replaceAll(app.dataDir, SHOWN_DIR));
  }
  if (resumes(example)) expectResumed(watch);
}

/** Expects a second request. A client other than EventSource must name the last event that it received. */
function expectResumed({ asked, first }: Watch): void {
  expect(asked.length).toBeGreaterThan(1);
  const [, last] = /"eventId":"(\d+)"/.exec(first) ?? [];
  if (last) expect(asked[1]).toMatch(new RegExp(`"after": ?"${last}"`));
}
