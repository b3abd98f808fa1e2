-- Tape systems. A volume belongs to one, and a drive as well; those of programs from before, which know of one only, to the first.
CREATE TYPE "LibraryContract" AS ENUM ('DRIVE', 'STAGING');

CREATE TABLE "library" (
    "id" SERIAL NOT NULL,
    "name" TEXT,
    "kind" TEXT,
    "contract" "LibraryContract" NOT NULL,
    "settings" JSONB NOT NULL DEFAULT '{}',
    "drives" INTEGER,
    "depth_files" INTEGER,
    "depth_bytes" BIGINT,
    "added_at" TIMESTAMP(6) NOT NULL,

    CONSTRAINT "library_pkey" PRIMARY KEY ("id"),
    -- TAPE_BACKEND and DRIVES tell these of the first one
    CONSTRAINT "library_first_check" CHECK (num_nulls("name", "kind", "drives") = CASE WHEN "id" = 1 THEN 3 ELSE 0 END)
);

CREATE UNIQUE INDEX "library_name_key" ON "library"("name");

INSERT INTO "library" ("contract", "added_at") VALUES ('DRIVE', timezone('utc', clock_timestamp()));

ALTER TABLE "volume" ADD COLUMN "library_id" INTEGER NOT NULL DEFAULT 1;
ALTER TABLE "volume" ADD CONSTRAINT "volume_library_id_fkey" FOREIGN KEY ("library_id") REFERENCES "library"("id") ON DELETE RESTRICT ON UPDATE CASCADE;
CREATE INDEX "volume_library_id_idx" ON "volume"("library_id");

ALTER TABLE "drive" ADD COLUMN "library_id" INTEGER NOT NULL DEFAULT 1;
ALTER TABLE "drive" ADD CONSTRAINT "drive_library_id_fkey" FOREIGN KEY ("library_id") REFERENCES "library"("id") ON DELETE RESTRICT ON UPDATE CASCADE;
CREATE INDEX "drive_library_id_idx" ON "drive"("library_id");

-- Of which library it works with the drives.
ALTER TABLE "engine_process" ADD COLUMN "library_id" INTEGER NOT NULL DEFAULT 1;

-- No drive takes a volume of another library. Programs from before would: they read the refusal as that of a volume which another
-- drive has, and leave it alone.
CREATE FUNCTION drive_library_check() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM volume v WHERE v.id = NEW.volume_id AND v.library_id = NEW.library_id) THEN
    RAISE unique_violation USING MESSAGE = format('%s is no drive of the library of volume %s', NEW.name, NEW.volume_id);
  END IF;
  RETURN NEW;
END
$$;

CREATE TRIGGER drive_library_check BEFORE UPDATE OF volume_id ON drive FOR EACH ROW
  WHEN (NEW.volume_id IS NOT NULL AND NEW.volume_id IS DISTINCT FROM OLD.volume_id) EXECUTE FUNCTION drive_library_check();
