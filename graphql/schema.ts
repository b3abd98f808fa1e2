/** The schema: each noun's file adds its types and fields to the builder. */
import './errors.js';
import './files.js';
import './requests.js';
import './holds.js';
import './releases.js';
import './retries.js';
import './quotas.js';
import './mail.js';
import './users.js';
import './rights.js';
import './caller.js';
import './legacy-uses.js';
import './libraries.js';
import './staging.js';
import './tapes.js';
import './disks.js';
import './doctor.js';
import './plan.js';
import './estimates.js';
import './verifications.js';
import './audit.js';
import './suspensions.js';
import './tokens.js';
import './tries.js';
import { builder } from './builder.js';
import { failLate } from './stray-errors.js';

export const schema = failLate(builder.toSchema());
