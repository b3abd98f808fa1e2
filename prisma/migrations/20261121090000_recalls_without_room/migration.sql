-- Recalls that wait for room on a restore disk, the oldest first: whoever makes room finds them, however long the queue is.
CREATE INDEX "recall_room_idx" ON "recall" ("created_at", "file_id") INCLUDE ("size") WHERE "not_before" = 'infinity';
