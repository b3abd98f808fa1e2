-- Webhooks: where they go, what they are still to be told, and how far events were looked through for them.
CREATE TYPE "WebhookEvent" AS ENUM ('REQUEST_STARTED', 'REQUEST_FIRST_FILE', 'REQUEST_FINISHED', 'REQUEST_FAILED',
  'REQUEST_EXPIRING', 'REQUEST_ENDED', 'QUOTA_NEARLY_FULL');
CREATE TYPE "WebhookMessageState" AS ENUM ('PENDING', 'SENT', 'GIVEN_UP');

CREATE TABLE "webhook" (
  "id" SERIAL PRIMARY KEY,
  "quota_id" INTEGER REFERENCES "quota"("id") ON DELETE RESTRICT ON UPDATE CASCADE,
  "url" TEXT NOT NULL,
  "events" "WebhookEvent"[],
  "note" TEXT NOT NULL,
  "secret" TEXT NOT NULL,
  "old_secret" TEXT,
  "old_secret_until" TIMESTAMP(6),
  "made_at" TIMESTAMP(6) NOT NULL,
  "made_by" TEXT NOT NULL,
  "disabled_at" TIMESTAMP(6),
  "disabled_reason" TEXT,
  "failures" INTEGER NOT NULL DEFAULT 0,
  "failing_since" TIMESTAMP(6),
  "last_error" TEXT,
  "sent_at" TIMESTAMP(6),
  "next_try_at" TIMESTAMP(6) NOT NULL
);

CREATE INDEX "webhook_quota_id_idx" ON "webhook"("quota_id");

CREATE TABLE "webhook_message" (
  "id" BIGSERIAL PRIMARY KEY,
  "webhook_id" INTEGER NOT NULL REFERENCES "webhook"("id") ON DELETE CASCADE ON UPDATE CASCADE,
  "message_id" TEXT NOT NULL,
  "type" TEXT NOT NULL,
  "quota_id" INTEGER,
  "request_id" INTEGER,
  "body" TEXT NOT NULL,
  "state" "WebhookMessageState" NOT NULL DEFAULT 'PENDING',
  "attempts" INTEGER NOT NULL DEFAULT 0,
  "created_at" TIMESTAMP(6) NOT NULL,
  "next_try_at" TIMESTAMP(6) NOT NULL,
  "sent_at" TIMESTAMP(6),
  "last_error" TEXT
);
CREATE UNIQUE INDEX "webhook_message_message_id_key" ON "webhook_message"("message_id");
CREATE INDEX "webhook_message_webhook_id_id_idx" ON "webhook_message"("webhook_id", "id");
CREATE INDEX "webhook_message_created_at_idx" ON "webhook_message"("created_at");
CREATE INDEX "webhook_message_due_idx" ON "webhook_message"("webhook_id", "next_try_at", "id") WHERE "state" = 'PENDING';

CREATE TABLE "webhook_cursor" (
  "id" INTEGER PRIMARY KEY DEFAULT 1 CHECK ("id" = 1),
  "last" BIGINT NOT NULL
);

CREATE TABLE "webhook_request" (
  "request_id" INTEGER PRIMARY KEY,
  "state" "RequestState" NOT NULL,
  "is_started" BOOLEAN NOT NULL,
  "has_first_file" BOOLEAN NOT NULL,
  "expires_at" TIMESTAMP(6)
);

CREATE TABLE "nearly_full_quota" (
  "quota_id" INTEGER PRIMARY KEY,
  "since" TIMESTAMP(6) NOT NULL
);
