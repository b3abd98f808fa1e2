/**
 * Functions for the system calls that Tapegate makes for each restored file. Uses numeric file descriptors, because
 * reading or writing a small file through a `FileHandle` takes twice as much CPU time.
 */
import fs from 'node:fs';
import { promisify } from 'node:util';

export const openFile = promisify(fs.open);
export const writeFile = promisify(fs.write);
export const syncFile = promisify(fs.fsync);
export const statFile = promisify(fs.fstat);
export const closeFile = promisify(fs.close);
export const lstatPath = promisify(fs.lstat);
export const linkPath = promisify(fs.link);
export const unlinkPath = promisify(fs.unlink);
export const changeOwner = promisify(fs.fchown);
export const changeMode = promisify(fs.fchmod);
export const changeTimes = promisify(fs.futimes);
