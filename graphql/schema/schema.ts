/** Assembles the GraphQL schema. Each imported file adds types and fields to the builder. */
import './errors.js';
import './files.js';
import './file-changes.js';
import './directories.js';
import './path-matches.js';
import './edges.js';
import './requests.js';
import './request-changes.js';
import './request-progress.js';
import './request-history.js';
import './quotas.js';
import './notifications.js';
import './callers.js';
import './libraries.js';
import './tapes.js';
import './disks.js';
import './doctor.js';
import './plan.js';
import './simulated-plan.js';
import './recalls.js';
import './site.js';
import './verifications.js';
import './suspensions.js';
import { builder } from './builder.js';
import { failLate } from './errors.js';
import { chargeLists } from './list-costs.js';

export const schema = chargeLists(failLate(builder.toSchema({ sortSchema: false })));
