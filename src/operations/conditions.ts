/** SQL conditions that several operations share. */
import { sql } from '../database/sql.js';

/** A request is live until it expires or is cancelled; only live requests hold files. `r` is the request. */
export const isLive = sql`r.state NOT IN ('EXPIRED', 'CANCELLED')`;

/** No live request holds the file. `f` is the file. */
export const isUnheld = sql`NOT EXISTS (SELECT FROM live_hold h WHERE h.file_id = f.id)`;

/**
 * The recall `c` waits. Where recalls are looked up by their files: said in the words of the index of the queue, which is
 * for whoever looks through it, PostgreSQL would take that one while it believes the queue to be empty, and read all of it
 * for each file.
 */
export const isWaiting = sql`c.state <> 'RUNNING'`;
