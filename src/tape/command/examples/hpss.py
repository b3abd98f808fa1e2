#!/usr/bin/env python3
"""HPSS as a staging library: hpss.py stage|poll|fetch|release -- ...

Untested. From the HSI reference manual. Set "offsets": false, because hsi returns whole files. Configure the login of hsi in its .hsirc, for
example a keytab. hsi parses commands like a shell, so this script accepts only paths without special characters.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

PLAIN = re.compile(r"[A-Za-z0-9_./+=:@,%-][A-Za-z0-9_./+=:@,% -]*")
verb, arguments = sys.argv[1], sys.argv[3:]  # argv[2] is --


def end(code, message):
    print(message, file=sys.stderr)
    sys.exit(code)


def hsi(lines):
    """Runs hsi commands and returns their output. hsi continues after a command that fails."""
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


def report(path, state, **more):
    print(json.dumps({"path": path, "state": state, **more}))


def levels(paths):
    """Returns DISK or TAPE for each path that exists, from the output of `ls -X`."""
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
        end(104, f"hsi cannot take the name {path!r}")
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
        report(path, "failed", **{"class": "POLICY"}, message=f"hsi cannot take the name {path!r}")
    elif path not in found:
        report(path, "failed", **{"class": "PERMANENT"}, message=f"there is no {path}")
    else:
        report(path, "ready" if found[path] == "DISK" else "waiting")
if verb == "stage":
    hsi(f'stage "{path}"' for path in plain if found.get(path) == "TAPE")  # without -w, hsi does not wait
