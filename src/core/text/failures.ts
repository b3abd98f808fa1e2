/** Words for the classes of recall errors, for users who want to know what they can do about a failed file. */

type ErrorClass = 'TRANSIENT' | 'PERMANENT' | 'MEDIA' | 'SPACE' | 'POLICY';

interface Failure {
  /** What happened. */
  what: string;
  /** What the user can do, if the file has failed. */
  advice: string;
  /** Whether a retry can succeed without a change by an operator. */
  isRetryUseful: boolean;
}

const failures: Record<ErrorClass, Failure> = {
  TRANSIENT: {
    what: 'A temporary error prevented the restore.',
    advice: 'Retry the file. If it fails again, contact your operator.',
    isRetryUseful: true,
  },
  PERMANENT: {
    what: 'The file cannot be read from tape.',
    advice: 'Retry after an operator has fixed the cause.',
    isRetryUseful: false,
  },
  MEDIA: {
    what: 'The tape copy is damaged.',
    advice: 'Contact your operator.',
    isRetryUseful: false,
  },
  SPACE: {
    what: 'There was no room for the file on disk.',
    advice: 'Release files that you no longer need, then retry.',
    isRetryUseful: true,
  },
  POLICY: {
    what: 'A rule of this site prevents the restore.',
    advice: 'Ask your operator which files you may restore.',
    isRetryUseful: false,
  },
};

export const describeFailure = (errorClass: ErrorClass): Failure => failures[errorClass];
