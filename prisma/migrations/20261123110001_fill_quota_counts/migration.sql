-- Of what is there. A migration of its own, since who changes the table keeps everybody from it until the end.
UPDATE "quota" q SET "open_requests" = c.requests, "awaited_paths" = c.paths, "standing_patterns" = c.patterns
FROM (
  SELECT r."quota_id", count(*) AS requests, count(*) FILTER (WHERE r."pattern" <> '') AS patterns, coalesce(sum(a.paths), 0) AS paths
  FROM "request" r LEFT JOIN (
    SELECT "request_id", count(*) AS paths FROM "awaited_path" WHERE "reason" = 'UNKNOWN' GROUP BY "request_id"
  ) a ON a."request_id" = r."id"
  WHERE r."state" NOT IN ('EXPIRED', 'CANCELLED') GROUP BY r."quota_id"
) c WHERE q."id" = c."quota_id";
