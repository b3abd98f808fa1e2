/** SQL conditions that several operations share. */

/** A request is live until it expires or is cancelled; only live requests hold files. `r` is the request. */
export const IS_LIVE = `r.state NOT IN ('EXPIRED', 'CANCELLED')`;

/** No live request holds the file. `f` is the file. */
export const IS_UNHELD = `NOT EXISTS (
  SELECT FROM live_hold h WHERE h.file_id = f.id)`;
