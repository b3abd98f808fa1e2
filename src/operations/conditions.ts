/** SQL conditions that several operations share. */
import { sql } from '../database/sql.js';

/** A request is live until it expires or is cancelled; only live requests hold files. `r` is the request. */
export const isLive = sql`r.state NOT IN ('EXPIRED', 'CANCELLED')`;

/** No live request holds the file. `f` is the file. */
export const isUnheld = sql`NOT EXISTS (SELECT FROM live_hold h WHERE h.file_id = f.id)`;
