-- Who has made a request; null where nobody noted it.
ALTER TABLE "request" ADD COLUMN "made_by" TEXT;

CREATE TYPE "TokenRole" AS ENUM ('USER', 'VIEWER', 'OPERATOR', 'SERVICE');

-- API tokens: only what proves them is kept, never themselves.
CREATE TABLE "api_token" (
    "id" SERIAL NOT NULL,
    "hash" BYTEA NOT NULL,
    "name" TEXT NOT NULL,
    "role" "TokenRole" NOT NULL,
    "quotas" TEXT[] NOT NULL DEFAULT '{}',
    "is_read_only" BOOLEAN NOT NULL DEFAULT false,
    "note" TEXT NOT NULL DEFAULT '',
    "made_at" TIMESTAMP(6) NOT NULL,
    "made_by" TEXT NOT NULL,
    "expires_at" TIMESTAMP(6),
    "revoked_at" TIMESTAMP(6),
    "used_at" TIMESTAMP(6),

    CONSTRAINT "api_token_pkey" PRIMARY KEY ("id")
);
CREATE UNIQUE INDEX "api_token_hash_key" ON "api_token"("hash");

CREATE TYPE "MemberKind" AS ENUM ('USER', 'GROUP');

-- Who else may use a quota, and who may change what others have asked for with it.
CREATE TABLE "quota_member" (
    "quota_id" INTEGER NOT NULL,
    "kind" "MemberKind" NOT NULL,
    "name" TEXT NOT NULL,
    "is_manager" BOOLEAN NOT NULL DEFAULT false,

    CONSTRAINT "quota_member_pkey" PRIMARY KEY ("quota_id", "kind", "name")
);
CREATE INDEX "quota_member_kind_name_idx" ON "quota_member"("kind", "name");
ALTER TABLE "quota_member" ADD CONSTRAINT "quota_member_quota_id_fkey" FOREIGN KEY ("quota_id") REFERENCES "quota"("id") ON DELETE RESTRICT ON UPDATE CASCADE;
