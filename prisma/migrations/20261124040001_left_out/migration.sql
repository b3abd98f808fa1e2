-- Of a standing request from which more was left out than is noted: the size of such a file, so that it is looked for when there is room.
ALTER TABLE "request" ADD COLUMN "left_out_size" BIGINT;
CREATE INDEX "request_left_out_idx" ON "request"("id") WHERE "left_out_size" IS NOT NULL;
