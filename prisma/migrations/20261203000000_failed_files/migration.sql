-- Finds the files that failed permanently in live requests, with which the dashboard lists the site's failures
CREATE INDEX "request_file_failed_idx" ON "request_file" ("request_id", "file_id") WHERE "state" = 'FAILED' AND NOT "is_ended";
