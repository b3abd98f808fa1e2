-- Folders that were made for links at archive paths: no other one is taken away when it is empty.
CREATE TABLE "link_folder" (
  "path" TEXT COLLATE "C" NOT NULL,
  "ino" BIGINT,
  "birth_ns" BIGINT,
  CONSTRAINT "link_folder_pkey" PRIMARY KEY ("path")
);
