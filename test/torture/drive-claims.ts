/** Claims of drives, watched by the database itself: of two engines that go by one drive it would tell only the last. */

/** Notes each claim of a drive that another engine still held. Seen after the claim was judged, a lease that goes on then went on before. */
export const WATCH_CLAIMS = `
  CREATE TABLE torture_double_claim (text text NOT NULL);
  CREATE FUNCTION torture_note_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.lease_until >= timezone('utc', clock_timestamp()) THEN
      INSERT INTO torture_double_claim VALUES (format('%s was claimed by %s while %s had it until %s', OLD.name, NEW.engine_id, OLD.engine_id, OLD.lease_until));
    ELSIF NEW.epoch <= OLD.epoch THEN
      INSERT INTO torture_double_claim VALUES (format('%s was claimed by %s with epoch %s after %s', OLD.name, NEW.engine_id, NEW.epoch, OLD.epoch));
    END IF;
    RETURN NEW;
  END $$;
  CREATE TRIGGER torture_claim AFTER UPDATE OF engine_id ON drive FOR EACH ROW
    WHEN (OLD.engine_id <> NEW.engine_id) EXECUTE FUNCTION torture_note_claim();`;

/** A sentence for each. */
export const READ_DOUBLE_CLAIMS = 'SELECT text FROM torture_double_claim';
