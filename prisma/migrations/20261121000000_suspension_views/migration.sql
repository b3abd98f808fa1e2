-- What is out of service, by the thing itself rather than by its name. Back ends are in no table: `suspended_backend`
-- has their names.
CREATE VIEW "suspended_volume" AS
  SELECT v.id AS volume_id, s.mode, s.reason FROM "suspension" s JOIN "volume" v ON v.name = s.name WHERE s.kind = 'VOLUME';

CREATE VIEW "suspended_drive" AS
  SELECT d.id AS drive_id, s.mode, s.reason FROM "suspension" s JOIN "drive" d ON d.name = s.name WHERE s.kind = 'DRIVE';

CREATE VIEW "suspended_quota" AS
  SELECT q.id AS quota_id, s.mode, s.reason FROM "suspension" s JOIN "quota" q ON q."user" = s.name WHERE s.kind = 'USER';

CREATE VIEW "suspended_disk" AS
  SELECT k.id AS disk_id, s.mode, s.reason FROM "suspension" s JOIN "restore_disk" k ON k.mountpoint = s.name
  WHERE s.kind = 'DISK';

CREATE VIEW "suspended_backend" AS
  SELECT s.name, s.mode, s.reason FROM "suspension" s WHERE s.kind = 'BACKEND';
