-- Links at archive paths to restored copies.
CREATE TABLE "link_root" (
  "id" INTEGER PRIMARY KEY DEFAULT 1 CHECK ("id" = 1),
  "path" TEXT
);

CREATE TABLE "archive_link" (
  "file_id" BIGINT PRIMARY KEY REFERENCES "tape_file"("id") ON DELETE RESTRICT ON UPDATE CASCADE,
  "at" TEXT,
  "target" TEXT,
  "is_there" BOOLEAN NOT NULL DEFAULT false,
  "change" BIGINT NOT NULL DEFAULT 0,
  "look_at" TIMESTAMP(6),
  "problem" TEXT
);
CREATE INDEX "archive_link_look_at_file_id_idx" ON "archive_link"("look_at", "file_id");

-- Whatever moves a copy has its link looked at: nobody who moves one has to think of it. The time is one that has come for any clock.
CREATE FUNCTION mark_link() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF (NEW.stage = 'RESTORED' OR NEW.changed_disk_id IS NOT NULL) AND EXISTS (SELECT FROM link_root r WHERE r.path IS NOT NULL) THEN
    INSERT INTO archive_link (file_id, look_at) VALUES (NEW.id, '1970-01-01')
      ON CONFLICT (file_id) DO UPDATE SET look_at = '1970-01-01', change = archive_link.change + 1;
  ELSE
    UPDATE archive_link SET look_at = '1970-01-01', change = change + 1 WHERE file_id = NEW.id;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER tape_file_link AFTER UPDATE OF "stage", "disk_id", "changed_disk_id", "path" ON "tape_file" FOR EACH ROW
  WHEN ((OLD.stage = 'RESTORED') <> (NEW.stage = 'RESTORED') OR OLD.path <> NEW.path
    OR (NEW.stage = 'RESTORED' AND OLD.disk_id IS DISTINCT FROM NEW.disk_id)
    OR OLD.changed_disk_id IS DISTINCT FROM NEW.changed_disk_id)
  EXECUTE FUNCTION mark_link();
