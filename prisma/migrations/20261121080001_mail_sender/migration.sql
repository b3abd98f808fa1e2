-- When an engine that has a mail server was last at work; one row at most.
CREATE TABLE "mail_sender" (
    "id" INTEGER NOT NULL DEFAULT 1,
    "seen_at" TIMESTAMP(6) NOT NULL,

    CONSTRAINT "mail_sender_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "mail_sender_one" CHECK ("id" = 1)
);
