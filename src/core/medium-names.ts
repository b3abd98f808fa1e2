/** Names of the cost models of volumes. src/planner/media.ts contains their figures. */
export const mediumNames = ['lto-8', 'lto-9', 'linear'] as const;

export type MediumName = (typeof mediumNames)[number];

/** Returns a known name unchanged, and `linear` for an unknown name. */
export const mediumNameOf = (name: string): MediumName => mediumNames.find((known) => known === name) ?? 'linear';
