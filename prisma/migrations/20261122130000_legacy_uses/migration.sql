-- What callers who showed nothing have asked for, so that an operator sees when nobody does any more.
CREATE TABLE "legacy_use" (
    "id" BIGSERIAL NOT NULL,
    "day" TIMESTAMP(6) NOT NULL,
    "endpoint" TEXT NOT NULL,
    "address" TEXT NOT NULL,
    "user" TEXT NOT NULL,
    "uses" BIGINT NOT NULL,
    "last_at" TIMESTAMP(6) NOT NULL,

    CONSTRAINT "legacy_use_pkey" PRIMARY KEY ("id")
);
CREATE UNIQUE INDEX "legacy_use_day_endpoint_address_user_key" ON "legacy_use"("day", "endpoint", "address", "user");
