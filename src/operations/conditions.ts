/** SQL conditions that several operations share. */
import { sql } from '../database/sql.js';

/** A request is live until it expires or is cancelled; only live requests hold files. `r` is the request. */
export const isLive = sql`r.state NOT IN ('EXPIRED', 'CANCELLED')`;

/**
 * What stands for the file `f` is a copy in the restore area that was changed by hand: it counts as on disk only while that
 * is there, which an engine has to look at. Any other file at UNVERIFIED or ONDISK is at its primary place.
 */
export const isChanged = sql`(f.stage = 'UNVERIFIED' AND f.changed_disk_id IS NOT NULL)`;

/** The file `f` is where it was archived from, and not in the restore area. */
export const isAtPrimaryPlace = sql`(f.stage = 'ONDISK' OR (f.stage = 'UNVERIFIED' AND f.changed_disk_id IS NULL))`;

/** No live request holds the file. `f` is the file. */
export const isUnheld = sql`NOT EXISTS (SELECT FROM live_hold h WHERE h.file_id = f.id)`;

/**
 * The recall `c` waits. Where recalls are looked up by their files: said in the words of the index of the queue, which is
 * for whoever looks through it, PostgreSQL would take that one while it believes the queue to be empty, and read all of it
 * for each file.
 */
export const isWaiting = sql`c.state <> 'RUNNING'`;

/** The recall `c` waits until a restore disk has room for it, at whatever time that is. */
export const needsRoom = sql`c.not_before = 'infinity'`;
