/** Names of the library types. src/tape/kinds.ts contains their implementations. */
export const libraryTypes = {
  directory: 'Files in a directory on disk, for tests and for archives on disk.',
  s3: 'An S3 bucket with archived objects, such as Amazon S3 Glacier.',
  command: "A tape system that is read with the site's own command.",
  ltfs: 'LTFS volumes in a tape changer.',
  'command-staging': "A tape system that is asked to stage files with the site's own commands.",
  wlcg: 'A server with the WLCG Tape REST API.',
} as const;

export type LibraryTypeName = keyof typeof libraryTypes;
