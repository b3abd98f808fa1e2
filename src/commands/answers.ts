/** What GraphQL sends as text and is none. */

/** The fields that are BigInt, in whichever type they are; a test holds them to the schema. */
export const integerFields: ReadonlySet<string> = new Set([
  'available',
  'bytes',
  'bytesAtPrimaryPlace',
  'bytesOnDisk',
  'bytesRestored',
  'bytesRunning',
  'bytesToRecall',
  'bytesTotal',
  'bytesWaiting',
  'copyPosition',
  'depthBytes',
  'eventId',
  'free',
  'leftBytes',
  'maxBytes',
  'position',
  'quotaSize',
  'quotaUsed',
  'quotaUsedAfter',
  'refused',
  'requested',
  'reserved',
  'sent',
  'size',
  'used',
  'uses',
]);

/** Makes bigints of the integers that an answer has as decimal strings, in place. */
export function readIntegers<Answer>(answer: Answer): Answer {
  if (typeof answer !== 'object' || answer === null) return answer;
  const fields = answer as Record<string, unknown>;
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === 'string' && integerFields.has(name)) fields[name] = BigInt(value);
    else readIntegers(value);
  }
  return answer;
}
