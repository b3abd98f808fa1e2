-- Mail has a rate, of each user and in all: whose a letter is, and up to when the rates are used.
ALTER TABLE "notification" ADD COLUMN "quota_id" INTEGER;
UPDATE "notification" n SET "quota_id" = r."quota_id" FROM "request" r WHERE r."id" = n."request_id" AND n."state" = 'PENDING';

-- Programs from before do not say whose their letters are.
CREATE FUNCTION notification_user() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.quota_id IS NULL THEN
    SELECT r.quota_id INTO NEW.quota_id FROM request r WHERE r.id = NEW.request_id;
  END IF;
  RETURN NEW;
END;
$$;
CREATE TRIGGER notification_user BEFORE INSERT ON "notification" FOR EACH ROW EXECUTE FUNCTION notification_user();

-- The letters that wait, by user.
CREATE INDEX "notification_waiting_idx" ON "notification" ("quota_id", "next_try_at", "id") WHERE "state" = 'PENDING';

-- It has no foreign key, which would wait for whoever charges the quota.
CREATE TABLE "mail_turn" (
    "quota_id" INTEGER NOT NULL,
    "used_until" TIMESTAMP(6) NOT NULL,

    CONSTRAINT "mail_turn_pkey" PRIMARY KEY ("quota_id")
);
ALTER TABLE "mail_sender" ADD COLUMN "used_until" TIMESTAMP(6);
