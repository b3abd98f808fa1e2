/** Reads metrics in the text format of Prometheus. */

export interface Sample {
  labels: Record<string, string>;
  value: number;
}

/**
 * @param url of a gateway, or of a metrics listener
 * @throws Error if the status is not 200
 */
export async function readMetrics(url: string, token?: string): Promise<string> {
  const headers: Record<string, string> = token === undefined ? {} : { Authorization: `Bearer ${token}` };
  const answer = await fetch(`${url}/metrics`, { headers });
  const text = await answer.text();
  if (answer.status !== 200) throw new Error(`/metrics answered ${answer.status}: ${text}`);
  return text;
}

export function samplesOf(text: string, name: string): Sample[] {
  return text.split('\n').flatMap((line) => {
    const match = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (match?.[1] !== name) return [];
    const labels = [...(match[2] ?? '').matchAll(/(\w+)="((?:\\.|[^"\\])*)"/g)].map(([, key = '', of = '']) => [
      key,
      of,
    ]);
    return [{ labels: Object.fromEntries(labels), value: Number(match[3]) }];
  });
}

/** Returns the value of the first sample with these labels. */
export function sampleOf(text: string, name: string, labels: Record<string, string> = {}): number | undefined {
  const all = samplesOf(text, name);
  return all.find((sample) => Object.entries(labels).every(([key, of]) => sample.labels[key] === of))?.value;
}
