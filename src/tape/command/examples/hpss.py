#!/usr/bin/env python3
"""HPSS as a staging library: hpss.py stage|poll|fetch|release -- ...

Untested. From the HSI reference manual. Set "offsets": false, since hsi gives whole files. How hsi logs in is hsi's own matter: a keytab that
its .hsirc names. hsi reads its commands as a shell does, so that only paths of plain signs are handed to it.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

PLAIN = re.compile(r"[A-Za-z0-9_./+=:@,%-][A-Za-z0-9_./+=:@,% -]*")
verb, arguments = sys.argv[1], sys.argv[3:]  # between them is --


def end(code, message):
    print(message, file=sys.stderr)
    sys.exit(code)


def hsi(lines):
    """What hsi says to commands; it goes on where one of them fails."""
    with tempfile.NamedTemporaryFile("w", prefix="tapegate-") as commands:
        commands.write("".join(line + "\n" for line in lines))
        commands.flush()
        try:
            done = subprocess.run(["hsi", "-q", "-P", f"in {commands.name}"], capture_output=True, text=True)
        except OSError as error:
            end(105, f"hsi: {error}")
    if done.returncode != 0 and done.stdout == "":
        end(105, done.stderr.strip() or f"hsi ended with {done.returncode}")
    return done.stdout


def say(path, state, **more):
    print(json.dumps({"path": path, "state": state, **more}))


def levels(paths):
    """DISK or TAPE for each that is there, as the long list with -X tells where the bytes are."""
    found = {}
    for line in hsi(f'ls -X "{path}"' for path in paths).splitlines():
        level = re.search(r"\s(DISK|TAPE)\s", line)
        path = next((each for each in paths if line.endswith(each)), None)
        if level and path:
            found[path] = level[1]
    return found


if verb == "fetch":
    path = arguments[0]
    if not PLAIN.fullmatch(path):
        end(104, f"hsi is not given the name {path!r}")
    level = levels([path]).get(path)
    if level != "DISK":
        end(*((107, f"{path} is on tape") if level else (101, f"there is no {path}")))
    os.execvp("hsi", ["hsi", "-q", f'get - : "{path}"'])

paths = [json.loads(line)["path"] for line in sys.stdin]
plain = [path for path in paths if PLAIN.fullmatch(path)]
if verb == "release":
    hsi(f'purge "{path}"' for path in plain)
    sys.exit(0)
found = levels(plain)
for path in paths:
    if path not in plain:
        say(path, "failed", **{"class": "POLICY"}, message=f"hsi is not given the name {path!r}")
    elif path not in found:
        say(path, "failed", **{"class": "PERMANENT"}, message=f"there is no {path}")
    else:
        say(path, "ready" if found[path] == "DISK" else "waiting")
if verb == "stage":
    hsi(f'stage "{path}"' for path in plain if found.get(path) == "TAPE")  # without -w: not waited for
