-- Of each request the first path that waits for its quota, and the first that waits for its limit.
CREATE INDEX "awaited_path_request_id_reason_path_idx" ON "awaited_path"("request_id", "reason", "path");
