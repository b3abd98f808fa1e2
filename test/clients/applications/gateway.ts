/** The address of the gateway, and the headers that authenticate the user. */
const { TAPEGATE_URL = 'http://127.0.0.1:8080', TAPEGATE_TOKEN } = process.env;

export const url = `${TAPEGATE_URL}/graphql`;

export const headers: Record<string, string> = TAPEGATE_TOKEN ? { Authorization: `Bearer ${TAPEGATE_TOKEN}` } : {};
