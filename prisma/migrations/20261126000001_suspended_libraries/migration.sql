-- What is suspended as a back end is a library, by its name. The name of the first one is not in the database: it is any that no other has.
CREATE VIEW "suspended_library" AS
  SELECT coalesce(b.id, 1) AS library_id, s.mode, s.reason FROM "suspension" s LEFT JOIN "library" b ON b.name = s.name
  WHERE s.kind = 'BACKEND';
