/** The names of the error classes in the site's views. */
export const errorClasses = {
  TRANSIENT: 'temporary',
  PERMANENT: 'permanent',
  MEDIA: 'cartridge',
  SPACE: 'no room',
  POLICY: 'site rule',
} as const;
