/** The parts of a browser that pages in the documents need: an element for each selector, whose text is printed, and relative URLs. */
import { readFileSync } from 'node:fs';

const { PAGE = '', PAGE_URL } = process.env;
const page = readFileSync(PAGE, 'utf8');

class StandIn extends EventTarget {
  constructor(selector) {
    super();
    const [, value = ''] = new RegExp(`<${selector}\\b[^>]* value="([^"]*)"`).exec(page) ?? [];
    this.value = value;
  }

  set textContent(text) {
    console.log(text);
  }
}

const elements = new Map();

function querySelector(selector) {
  const element = elements.get(selector) ?? new StandIn(selector);
  elements.set(selector, element);
  return element;
}

const { fetch: originalFetch, EventSource: OriginalEventSource } = globalThis;

globalThis.document = { querySelector };
globalThis.fetch = (url, init) => originalFetch(new URL(url, PAGE_URL), init);
/** Keeps Node running while an event source reconnects. */
globalThis.EventSource = class extends OriginalEventSource {
  #stay = setInterval(() => {}, 1000);

  constructor(url) {
    super(new URL(url, PAGE_URL));
  }

  close() {
    clearInterval(this.#stay);
    super.close();
  }
};

// the script has run: press the button
process.once('beforeExit', () => querySelector('form').dispatchEvent(new Event('submit', { cancelable: true })));
