-- Which programs the database bears, by migration: bears.json beside the migrations, as the newest program has it. A
-- program is known by the newest migration that it brings.
CREATE TABLE "oldest_program" (
    "migration" TEXT NOT NULL,
    "program" TEXT NOT NULL,

    CONSTRAINT "oldest_program_pkey" PRIMARY KEY ("migration")
);
